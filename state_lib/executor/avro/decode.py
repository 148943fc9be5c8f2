"""Decodes Avro records in executors: from a column of bytes to the columns of the reader's schema.

Each record is read by its writer's schema, and resolved to the reader's. The result depends on the
bytes and on the two schemas alone, as the schema of an id never changes. Parsed schemas are cached
for the life of the process, up to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError
from pyspark.sql.pandas.types import to_arrow_type

from state_lib.errors import ConfigurationError, HoldfastError, UnknownSchemas
from state_lib.executor.avro.bounds import Bounds
from state_lib.executor.avro.registry import Schemas
from state_lib.executor.avro.schema import BROKEN, columns_of, normal
from state_lib.executor.avro.values import Convert, converter, filled, ours
from state_lib.executor.carried import Carried

MAGIC, HEADER = 0, 5
UNDECODABLE, WRONG_SCHEMA = "undecodable", "wrong-schema"
MOST_UNKNOWN = 1000
"""Unknown ids in one batch: with more of them, something else is wrong than missing schemas."""
_WRITERS, _READERS, _SHOWN, _SAID = 5000, 64, 10, 300
_TOGETHER = 4096
"""Records that are Python objects at a time: an Arrow batch has up to 200,000."""
Row = dict[str, Any]


class Found(NamedTuple):
    """A record, or why there is none: the reason, and fastavro's message about its schema."""

    row: Row | None = None
    why: str | None = None
    said: str | None = None


class Reader:
    """A reader's schema, and the conversion of values that were resolved to it.

    Args:
        text: from `state_lib.executor.avro.schema.pinned`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.written = _bare([text])
        self.schema = filled(parse_schema(orjson.loads(text)))
        self._convert: Convert | None = converter(orjson.loads(text))
        self._type: pa.DataType = to_arrow_type(columns_of(text), timezone="UTC")

    def array(self, found: Sequence[Found]) -> pa.StructArray:
        """Rows and reasons as an array for Spark. A value that does not fit is undecodable."""
        whys = [one.why for one in found]
        rows = [self._converted(one.row, whys, at) for at, one in enumerate(found)]
        try:
            made = pa.array(rows, self._type)
        except _MISFITS:
            for at, row in enumerate(rows):
                if not self._fits(row):
                    rows[at], whys[at] = None, UNDECODABLE
            made = pa.array(rows, self._type)
        texts = [pa.array(one, pa.string()) for one in (whys, [one.said for one in found])]
        return pa.StructArray.from_arrays([made, *texts], ["row", "why", "said"])

    def _converted(self, row: Row | None, whys: list[str | None], at: int) -> Row | None:
        if row is None or self._convert is None:
            return row
        try:
            converted: Row = self._convert(row)
        except _MISFITS:
            whys[at] = UNDECODABLE
            return None
        return converted

    def _fits(self, row: Row | None) -> bool:
        try:
            pa.array([row], self._type)
        except _MISFITS:
            return False
        return True


_MISFITS = (
    ValueError, TypeError, ArithmeticError, AttributeError, KeyError, NotImplementedError,
)  # fmt: skip
"""Errors of Arrow for a value that its type cannot hold. Lack of memory is none of them."""


class Writer:
    """A writer's schema; ``own``: it equals the reader's."""

    def __init__(self, texts: Sequence[str], reader: Reader) -> None:
        text = _bare(texts)
        schema = orjson.loads(text)
        self.schema, self.own = parse_schema(ours(schema)), text == reader.written
        bounds = Bounds(schema)
        self.bounds = bounds if bounds.needed else None


def _bare(texts: Sequence[str]) -> str:
    """The part of a schema that determines the binary form."""
    return orjson.dumps(normal(texts, written=True), option=orjson.OPT_SORT_KEYS).decode()


@lru_cache(_READERS)
def reader_of(text: str) -> Reader:
    """The reader of a schema."""
    return Reader(text)


@lru_cache(_WRITERS)
def writer_of(schemas: Schemas, number: int, reader: str) -> Writer | None:
    """The writer's schema of an id; None if it is not an Avro schema.

    Raises:
        LookupError: the id is unknown. That is not cached: it may be registered later.
        RegistryAway, RegistryRefused: as `Schemas.of`.
    """
    texts = schemas.of(number)
    if texts is None:
        raise LookupError(number)
    if not texts:
        return None
    try:
        return Writer(texts, reader_of(reader))
    except BROKEN:
        return None


def decoder(
    topic: str, reader: str, schemas: Schemas
) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """For ``arrow_udf``: values of a topic → ``struct<row, why, said>``.

    ``why``: null, ``undecodable`` or ``wrong-schema``. For a null value all three are null.
    """

    def decode(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        try:
            yield from decoded(values, reader, schemas, topic)
        except HoldfastError as error:
            raise Carried(error) from error

    return decode


def decoded(
    values: Iterator[pa.Array], reader: str, schemas: Schemas, topic: str = ""
) -> Iterator[pa.Array]:
    """See `decoder`; sizes of the arrays differ from those of the input.

    Raises:
        UnknownSchemas: at the end, with all ids that the registry does not know: the job fails,
            and none of its results are used.
        ConfigurationError: there are more than `MOST_UNKNOWN` of them.
        RegistryAway, RegistryRefused: as `Schemas.of`.
    """
    known, unknown = reader_of(reader), set[int]()
    for some in values:
        for begin in range(0, max(len(some), 1), _TOGETHER):
            part = some.slice(begin, _TOGETHER).to_pylist()
            found = [_decoded(raw, known, schemas, unknown) for raw in part]
            if len(unknown) > MOST_UNKNOWN:
                raise too_many([topic], schemas.url)
            yield known.array(found)
    if unknown:
        ids = sorted(unknown)
        raise UnknownSchemas(
            f"the Schema Registry at {schemas.url} does not know the schemas {ids[:_SHOWN]}"
            f"{'…' if len(ids) > _SHOWN else ''}, by which records of topic {topic!r} were written",
            url=schemas.url,
            ids=ids,
        )


def too_many(topics: Sequence[str], url: str) -> ConfigurationError:
    """The error for more than `MOST_UNKNOWN` unknown ids."""
    return ConfigurationError(
        f"records of {', '.join(topics)} name more than {MOST_UNKNOWN} schemas, in one batch, that "
        f"the Schema Registry at {url} does not know. Either it is not the registry of their "
        "producers (see schema_registry_url), or they are not in Avro: read the topic as "
        "format='raw'. Nothing of the batch was committed",
        topics=list(topics),
        url=url,
    )


def _decoded(raw: bytes | None, reader: Reader, schemas: Schemas, unknown: set[int]) -> Found:
    if raw is None:
        return Found()
    if len(raw) < HEADER or raw[0] != MAGIC:
        return Found(why=UNDECODABLE)
    number = int.from_bytes(raw[1:HEADER], "big")
    if number in unknown:
        return Found()
    try:
        writer = writer_of(schemas, number, reader.text)
    except LookupError:
        unknown.add(number)
        return Found()
    if writer is None:
        return Found(None, WRONG_SCHEMA, f"schema {number} is none of Avro")
    return _read(raw, writer, reader, number)


def _read(raw: bytes, writer: Writer, reader: Reader, number: int) -> Found:
    """Read a record; bytes left over mean that it was written by another schema."""
    file = BytesIO(raw)
    file.seek(HEADER)
    try:
        if writer.bounds is not None:
            writer.bounds.check(raw, HEADER)
        row = schemaless_reader(file, writer.schema, None if writer.own else reader.schema)
    except SchemaResolutionError as error:
        return Found(None, WRONG_SCHEMA, f"schema {number}: {str(error)[:_SAID]}")
    except MemoryError:
        raise  # not the record's fault
    except Exception:  # noqa: BLE001 - fastavro raises many kinds of broken bytes
        return Found(why=UNDECODABLE)
    if file.tell() != len(raw):
        return Found(why=UNDECODABLE)
    if not isinstance(row, dict):
        return Found(None, WRONG_SCHEMA, f"schema {number} is none of a record")
    return Found(row)
