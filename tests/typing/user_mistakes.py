"""Mistakes that a type checker tells of: each one needs its ``type: ignore``, or that is unused."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from state_lib import Application, KStream, Materialized, TimeWindows, agg
from state_lib.testing import TopologyTestDriver


def mistaken(spark: SparkSession, processor: StatefulProcessor) -> None:
    """One a line."""
    app = Application("app", spark, partitions="4")  # type: ignore[arg-type]
    rows: KStream = app.stream("events", "k STRING, x BIGINT", format="csv")  # type: ignore[arg-type]
    app.stream("events", {"k": "STRING"})  # type: ignore[arg-type]
    rows.withColumn("y", "x")  # type: ignore[arg-type]
    rows.where(7)  # type: ignore[arg-type]
    grouped = rows.groupBy("k")
    grouped.sum("x")  # type: ignore[attr-defined]
    grouped.agg("sums", total=F.sum("x"))  # type: ignore[arg-type]
    grouped.agg("means", mean=agg.avg("x"))  # type: ignore[attr-defined]
    grouped.count()  # type: ignore[call-arg]
    grouped.count(Materialized("kept", backend="disk"))  # type: ignore[arg-type]
    grouped.windowedBy(TimeWindows(hours=1))  # type: ignore[call-arg]
    grouped.count("table").to("changes")  # type: ignore[attr-defined]
    grouped.count("changes").toStream().where("count > 1")  # type: ignore[attr-defined]
    grouped.reduce(max, "most", onError="ignore")  # type: ignore[arg-type]
    grouped.transformWithState(processor, "k STRING", "Append", "None")  # type: ignore[call-arg]
    query = app.start()
    query.awaitTermination("10 seconds")  # type: ignore[arg-type]
    with TopologyTestDriver(lambda app: app.stream("t"), spark) as driver:
        driver.createInputTopic("t").pipeInput({}, partition="0")  # type: ignore[arg-type]
        driver.getKeyValueStore("kept").put("a", 1)  # type: ignore[attr-defined]
