"""What the JVM is asked for once a query stands."""

from __future__ import annotations

import pytest
from py4j.protocol import REFLECTION_COMMAND_NAME
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.spark.template import Template
from tests.support.rows import source


def test_no_class_is_looked_up_for_a_batch(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name in a path to one is a call, and a plan has many nodes."""
    first, other = source(spark, []), source(spark, [])
    built = first.where("value IS NOT NULL").groupBy("key").agg(F.count("value").alias("n"))
    template = Template(first, built)
    asked: list[str] = []
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    send = client.send_command

    def heard(command: str, *more: object, **named: object) -> object:
        asked.append(command)
        return send(command, *more, **named)

    monkeypatch.setattr(client, "send_command", heard)
    again = template.over(other)
    assert asked, "the listener hears"
    assert [c for c in asked if c.startswith(REFLECTION_COMMAND_NAME)] == []
    monkeypatch.undo()
    assert again.columns == ["key", "n"]
