"""The columns of a topic in Avro, on a frame of its records."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from state_lib.declaration import Declaration, Source
from state_lib.errors import ConfigurationError
from state_lib.executor.avro.decode import MAGIC, decoder
from state_lib.executor.avro.registry import RegistrySchemas, Schemas
from state_lib.executor.avro.schema import columns_of
from state_lib.settings.registry import RegistrySettings

_FOUND = "__hf_found"


def schemas_of(app: Declaration, settings: RegistrySettings) -> Schemas | None:
    """Where the schemas of an application's records are; None if none are in Avro.

    Raises:
        ConfigurationError: they are in Avro, and no registry is set, or its log-in cannot be read.
    """
    topics = sorted({verb.source.topic for verb in app.verbs if verb.source.format == "avro"})
    if not topics:
        return None
    registry = settings.schema_registry()
    if registry is None:
        raise ConfigurationError(
            f"application {app.id!r} reads {topics} as Avro, and no Schema Registry is set: its "
            "schemas are there by the ids in the records. Set schema_registry_url in [kafka]",
            topics=topics,
        )
    return RegistrySchemas(registry)


def parsed(rows: DataFrame, source: Source, schemas: Schemas | None) -> DataFrame:
    """Rows with ``__hf_parsed``, the fields of a record, and ``__hf_broken``, why there are none.

    ``__hf_said``: what is wrong with the record's schema, and which it is.

    ``__hf_unknown``: ids of schemas that the registry did not know when the batch was decided. Once
    it is decided they stay unknown, whatever is registered later.

    Raises:
        ConfigurationError: nobody says where schemas are.
    """
    if schemas is None:
        raise ConfigurationError(
            f"topic {source.topic!r} is in Avro, and no Schema Registry is set"
        )
    texts = [T.StructField(name, T.StringType()) for name in ("why", "said")]
    result = T.StructType([T.StructField("row", columns_of(source.reader)), *texts])
    udf: Any = arrow_udf  # its type stubs do not allow structs
    decode = udf(decoder(source.topic, source.reader, schemas), result)
    raw = F.col("__hf_value")
    rows = rows.withColumn(_FOUND, decode(F.when(~_is_unknown(raw), raw)))
    found = F.col(_FOUND)
    broken = (
        F.when(raw.isNull(), "undecodable")
        .when(_is_unknown(raw), "unknown-schema")
        .otherwise(found.getField("why"))
    )
    nobodys = F.when(_is_unknown(raw), F.concat(F.lit("schema "), _number(raw).cast("string")))
    return rows.withColumns(
        {
            "__hf_parsed": found.getField("row"),
            "__hf_broken": broken,
            "__hf_said": F.coalesce(nobodys, found.getField("said")),
        }
    ).drop(_FOUND, "__hf_unknown")


def _number(raw: Column) -> Column:
    return F.conv(F.hex(F.substring(raw, 2, 4)), 16, 10).cast("bigint")


def _is_unknown(raw: Column) -> Column:
    known_unknown = F.array_contains(F.col("__hf_unknown"), _number(raw))
    begins = F.substring(raw, 1, 1) == F.lit(bytes([MAGIC]))
    whole = F.octet_length(raw) >= F.lit(5)
    return F.coalesce(begins & whole & known_unknown, F.lit(False))  # noqa: FBT003
