"""``[driver]``: Spark's driver and executors: where they run, batches, patience."""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ByteSize, Field, PositiveInt

from state_lib.settings.kinds import MIB, AbsolutePath, Port, Seconds
from state_lib.settings.properties import Properties, refusing

_OURS = {
    "spark.master": "set spark_master; in Airflow, the Spark connection says it",
    "spark.app.name": "it is the application's id",
    "spark.driver.memory": "set driver_memory",
    "spark.driver.extraJavaOptions": "set driver_java_options",
    "spark.ui.port": "set spark_ui_port",
}


def _of_spark(properties: dict[str, str]) -> dict[str, str]:
    for name in properties:
        if not name.startswith("spark."):
            raise ValueError(f"{name} is no property of Spark: their names begin with 'spark.'")
    return properties


class DriverSettings(BaseModel):
    """The section ``[driver]``."""

    spark_master: str = Field(
        "local[2,4]", description="Spark's master; the second number is tries per task."
    )
    spark_properties: Annotated[
        Properties, AfterValidator(_of_spark), AfterValidator(refusing(_OURS))
    ] = Field(
        {},
        description="Properties of Spark, for every driver. In the file they stand in [driver] by "
        "their own names; as a variable they are JSON.",
    )
    spark_ui_port: Port = Field(24040, description="Port of Spark's own page; the next free one.")
    driver_memory: str = Field("2g", description="Heap of Spark's driver, as in -Xmx.")
    driver_java_options: str = Field(
        "-XX:+UseParallelGC", description="JVM flags of Spark's driver: it wants throughput."
    )
    executor_archive: AbsolutePath | None = Field(
        None,
        description="Archive of `holdfast pack` that Spark ships to executors without Holdfast. "
        "Made absolute.",
    )
    executor_python: str = Field(
        f"python3.{sys.version_info.minor}",
        description="Python of executors that get the archive: of the driver's minor version.",
    )
    max_offsets_per_trigger: PositiveInt = Field(
        4_000_000, description="Most records in one batch."
    )
    first_offsets_per_trigger: PositiveInt = Field(
        50_000,
        description="Most records in a stream's first batch, whose JVM is cold, and in the next "
        "one after a calm minute.",
    )
    max_bytes_per_trigger: ByteSize = Field(
        ByteSize(256 * MIB),
        description="Most bytes in one batch: of keys and values, by the size of a few of them.",
    )
    batch_target_s: Seconds = Field(
        4.0,
        description="What a batch of a stream that catches up should take, in s: batches grow and "
        "shrink by it, within the two bounds.",
    )
    max_future_s: Seconds = Field(
        3600.0,
        description="Records dated further ahead of the wall clock, in s, go to the dead letters.",
    )
    exchange_timeout_s: Seconds = Field(
        300.0,
        description="How long a batch's exchange with a host may take, in s: also how long a "
        "driver waits while no task can be reached.",
    )
    park_after_s: Seconds = Field(
        10.0,
        description="How long all tasks wait for one whose host is away or restores it, in s; then "
        "the stream goes on without it, and it catches up when it is back.",
    )
    stop_timeout_s: Seconds = Field(
        60.0,
        description="How long a driver that is asked to stop finishes its batch, in s; one that "
        "takes longer, because a host is away for example, is left to the next driver.",
    )
    max_restarts: PositiveInt = Field(
        10, description="How often in a row a driver starts its stream again before it gives up."
    )
    accept_new_code: str = Field(
        "",
        description="Fingerprint of a job's former code: a batch that it left half done may be "
        "finished by the present code, although rows may be lost or counted twice.",
    )
