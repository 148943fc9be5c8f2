"""Topics in Avro, in a test: schemas without a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import orjson

from state_lib.declaration import Declaration
from state_lib.errors import InvalidRequest


@dataclass(frozen=True)
class LocalSchemas:
    """Stands in for a registry: knows schemas by their place, from 1."""

    texts: tuple[str, ...]
    url: str = "memory:"

    def of(self, number: int) -> tuple[str, ...] | None:
        """As `state_lib.executor.avro.registry.Schemas`."""
        return (self.texts[number - 1],) if 0 < number <= len(self.texts) else None

    def knows_any(self, topics: Sequence[str]) -> bool:  # noqa: ARG002 - as there
        """As there."""
        return bool(self.texts)

    def encoded(self, reader: str, value: Any, topic: str) -> bytes:
        """A value written by the very schema that its topic is read by.

        Raises:
            InvalidRequest: it does not fit.
        """
        from fastavro import parse_schema, schemaless_writer  # noqa: PLC0415 - only of such topics

        file = BytesIO()
        try:
            schemaless_writer(file, parse_schema(orjson.loads(reader)), value)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise InvalidRequest(
                f"topic {topic!r}: {value!r} cannot be written by its schema: {error}", topic=topic
            ) from error
        number = self.texts.index(reader) + 1
        return bytes(1) + number.to_bytes(4, "big") + file.getvalue()


def local_schemas(app: Declaration) -> LocalSchemas | None:
    """The schemas that topics of an application are read by; None if none are in Avro."""
    readers = {verb.source.reader for verb in app.verbs if verb.source.format == "avro"}
    return LocalSchemas(tuple(sorted(readers))) if readers else None
