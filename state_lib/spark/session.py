"""The Spark session of a driver: settings that the commit protocol relies on, and fast ones."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from state_lib.errors import ConfigurationError
from state_lib.spark.jvm import PORT
from state_lib.spark.properties import (
    LEGACY,
    OF_SQL,
    REQUIRED,
    name_of,
    prepare_environment,
    properties,
)
from state_lib.submit import secret_conf

if TYPE_CHECKING:
    from state_lib.config import Settings

_OF_LIBRDKAFKA = (
    "ssl.certificate.",
    "ssl.key.",
    "ssl.keystore.",
    "sasl.oauthbearer.",
    "sasl.kerberos.",
)
"""Properties without which brokers that want them let nobody in."""
_LEGACY = re.compile(rf"({re.escape(LEGACY)}[\w.]+) -> ([^,)]*)")
FAST_READS = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    # at the end of a log brokers wait for more records, by default half a second [tried]
    "kafka.fetch.max.wait.ms": "50",
}


def open_session(app_id: str, settings: Settings, **conf: str) -> SparkSession:
    """Start Spark, or join the JVM that ``spark-submit`` or `state_lib.spark.jvm` has started.

    ``conf`` are Spark properties with underscores for dots.

    Raises:
        ConfigurationError: the settings are none for a driver.
    """
    check_login(settings)
    prepare_environment(settings)
    builder = SparkSession.builder.appName(name_of(app_id))
    if PORT not in os.environ:
        for key, value in properties(app_id, settings).items():
            builder = builder.config(key, value)
    given = {key.replace("_", "."): value for key, value in conf.items()}
    for key, value in (secret_conf(settings) | REQUIRED | given).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    check_required(spark)
    return spark


def check_login(settings: Settings) -> None:
    """Refuse settings by which hosts log in to the brokers and Spark's Kafka source cannot.

    Raises:
        ConfigurationError: naming the property.
    """
    if others := [n for n in settings.kafka_properties if n.startswith(_OF_LIBRDKAFKA)]:
        raise ConfigurationError(
            f"{others[0]} is a property of librdkafka: hosts and tools log in by it, and Spark's "
            "Kafka source has none like it. Let drivers in by SASL (kafka_sasl_mechanism and what "
            "belongs to it), and set it for hosts alone",
            settings=others,
        )


def check_required(spark: SparkSession) -> None:
    """Refuse a session in which rows might come to other tasks than theirs, or mean another thing.

    Raises:
        ConfigurationError: the setting, the value seen and the one that is needed.
    """
    for key, needed in REQUIRED.items():
        seen = spark.conf.get(key, None)
        if seen != needed:
            raise ConfigurationError(
                f"Spark's setting {key} is {seen!r} and must be {needed!r}: remove what sets it",
                key=key,
                seen=seen,
                needed=needed,
            )
    check_legacy(spark)


def check_legacy(spark: SparkSession) -> None:
    """Refuse settings by which expressions mean what they meant in an earlier Spark.

    They may be others at the next start, which then finishes a batch differently.

    Raises:
        ConfigurationError: the setting, and the value seen.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 - in one text: a map would be a call an entry
    confs = str(session.sessionState().conf().getAllConfs())
    for key, seen in sorted(_LEGACY.findall(confs)):
        if key not in REQUIRED:
            raise ConfigurationError(
                f"Spark's setting {key} is {seen!r}, and by such settings an expression means "
                "another thing: remove what sets it, and write the expression for Spark 4",
                key=key,
                seen=seen,
            )


def require_of_sql(spark: SparkSession) -> None:
    """Set in a session what is needed of it. Raises as `check_legacy`."""
    for key, value in REQUIRED.items():
        if key.startswith(OF_SQL):  # other settings are of Spark's processes
            spark.conf.set(key, value)
    check_legacy(spark)


def kafka_options(settings: Settings, topics: list[str]) -> dict[str, str]:
    """Options of the Kafka source, for streams and for bounded reads."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        **{f"kafka.{key}": value for key, value in settings.kafka_login().java().items()},
        "subscribe": ",".join(topics),
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        **FAST_READS,
    }


def read_range(
    spark: SparkSession, options: dict[str, str], from_json: str, to_json: str
) -> DataFrame:
    """A bounded read between two positions, of the partitions that they name.

    Partitions that were added to the topics since are left out: asked for topics, Spark refuses
    positions that lack one.
    """
    partitions = {topic: [int(p) for p in at] for topic, at in orjson.loads(from_json).items()}
    named = {key: value for key, value in options.items() if key != "subscribe"}
    return (
        spark.read.format("kafka")
        .options(**named)
        .option("assign", orjson.dumps(partitions).decode())
        .option("startingOffsets", from_json)
        .option("endingOffsets", to_json)
        .load()
    )
