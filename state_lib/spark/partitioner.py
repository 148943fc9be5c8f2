"""Kafka's own partitioner as a Spark column.

Spark's hashes are others (murmur3, xxhash64); a task must be the partition that a Kafka producer
would choose. The producer's class is on the driver's and executors' class path with the Kafka
source, so Spark calls it: ``BuiltInPartitioner.partitionForKey`` of kafka-clients, compiled into
the query's generated code. (docs/adr/0003)
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession

_CLASS = "org.apache.kafka.clients.producer.internals.BuiltInPartitioner"


def partition_for_key(spark: SparkSession, key: Column, partitions: int) -> Column:
    """``toPositive(murmur2(key)) % partitions``; the key must be binary and is not null-checked."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    static_invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        partitioner(spark),
        _scala_object(jvm.org.apache.spark.sql.types, "IntegerType"),
        "partitionForKey",
        jvm.PythonUtils.toSeq([utils.expression(key._jc), utils.expression(F.lit(partitions)._jc)]),  # noqa: SLF001
        jvm.PythonUtils.toSeq([]),
        True,  # noqa: FBT003 - propagateNull
        False,  # noqa: FBT003 - returnNullable
        True,  # noqa: FBT003 - isDeterministic
        _scala_object(jvm.scala, "None"),
    )
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415

    return ClassicColumn(utils.column(static_invoke))


def partitioner(spark: SparkSession) -> Any:
    """Kafka's class in the JVM. Raises Py4JJavaError if kafka-clients is not on its class path."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(_CLASS, True, loader)  # noqa: FBT003


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, name + "$"), "MODULE$")
