"""A stand-in for a Schema Registry, which is away or answers nonsense when a test says so.

It answers the calls that Holdfast and Confluent's own client make (schemas by id, versions of a
subject, registering), error codes included, as the one that really runs (`tests.support.apicurio`):
tests/integration/spark/test_avro_registry.py holds its answers against that one's. It judges no
compatibility, and keeps nothing on disk.
"""

from __future__ import annotations

import base64
import json
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

from fastavro import parse_schema, schemaless_writer

from tests.support.small_http import Server


class StandIn(Server):
    """``away``: it answers 503; ``login``: name and password that it wants.

    ``instead``: what it answers whatever it is asked. ``asked`` counts what it was asked for.
    """

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.away, self.asked = False, list[str]()
        self.instead: tuple[int, Any] | None = None
        self._wanted = login and "Basic " + base64.b64encode(":".join(login).encode()).decode()
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._deleted: set[tuple[str, int]] = set()

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """A schema's id, as ``POST /subjects/<subject>/versions`` gives it."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        kept = {"schema": text, **more}
        number = next((n for n, one in self._schemas.items() if one == kept), 0)
        number = number or max(self._schemas, default=0) + 1
        self._schemas[number] = kept
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def forget(self, number: int) -> None:
        """As after a hard deletion."""
        del self._schemas[number]

    def delete(self, subject: str, version: int) -> None:
        """Softly: its id is answered for, and its version if that is asked for."""
        self._deleted.add((subject, version))

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        self.asked.append("/".join(parts))
        if self.away or self.instead:
            return self.instead or (503, {"error_code": 50301, "message": "it is away"})
        if self._wanted and self.authorization != self._wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                found = self._schemas.get(int(number))
                return (200, found) if found else (404, _error(40403, "Schema not found"))
            case "GET", ["subjects", *of]:
                deleted = "deleted=true" in path.lower()
                return self._version(of[0], of[2], deleted) if of else (200, [*self._subjects])
            case "POST", ["subjects", subject, "versions"]:
                said = json.loads(body)
                return 200, {"id": self.register(subject, said.pop("schema"), **said)}
        return 404, b"no such page"

    def _version(self, subject: str, version: str, deleted: bool) -> tuple[int, Any]:
        there = [
            (at, number)
            for at, number in enumerate(self._subjects.get(subject, ()), 1)
            if number in self._schemas and (deleted or (subject, at) not in self._deleted)
        ]
        if not there:
            return 404, _error(40401, f"Subject '{subject}' not found")
        wanted = there[-1][0] if version == "latest" else int(version)
        for at, number in there:
            if at == wanted:
                own = {"subject": subject, "version": at, "id": number}
                return 200, {**own, **self._schemas[number]}
        return 404, _error(40402, "Version not found")


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


def framed(number: int, schema: Any, value: Any) -> bytes:
    """A value as Confluent's serializers write it."""
    file = BytesIO()
    schemaless_writer(file, parse_schema(schema), value)
    return bytes(1) + number.to_bytes(4, "big") + file.getvalue()


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """A schema of a record; a field is its type, or a pair of type and default."""
    made = []
    for field, kind in fields.items():
        if isinstance(kind, tuple):
            made.append({"name": field, "type": kind[0], "default": kind[1]})
        else:
            made.append({"name": field, "type": kind})
    return {"type": "record", "name": name, "namespace": "holdfast.tests", "fields": made}
