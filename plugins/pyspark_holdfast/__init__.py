"""Makes ``spark.read.format("holdfast")`` known: Spark looks for packages ``pyspark_*``."""

from state_lib.spark.source.source import DefaultSource

__all__ = ["DefaultSource"]
