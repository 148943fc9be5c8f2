"""Pipelines in one process: no broker, no host, no port."""

from __future__ import annotations

from pyspark.sql import SparkSession

from state_lib import Application, Text
from state_lib.testing import TopologyTestDriver


def word_count(app: Application) -> None:
    words = app.stream("lines", Text()).explode("word", "split(lower(value), '[^a-z]+')")
    words.where("word <> ''").group_by("word").count("counts").to("word-counts")


def test_words_are_counted(spark: SparkSession) -> None:
    with TopologyTestDriver(word_count, spark) as driver:
        lines = driver.createInputTopic("lines")
        lines.pipeInput("to be or not to be", timestamp=1000)
        assert driver.createOutputTopic("word-counts").readKeyValuesToMap() == {
            "to": {"word": "to", "count": 2},
            "be": {"word": "be", "count": 2},
            "or": {"word": "or", "count": 1},
            "not": {"word": "not", "count": 1},
        }
        lines.pipeInput("to")
        assert driver.getKeyValueStore("counts").get("to") == 3
