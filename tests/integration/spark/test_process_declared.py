"""How processors are declared: what is refused at its line, and what tells one from another."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state_lib import Application, TimeWindows
from state_lib.errors import ConfigurationError
from state_lib.evolution import contradictions
from tests.support.one_processor import OUT, doing, listed, mapped, value
from tests.support.processors import BEAT, Doing, Silence, silence


class Locked(Silence):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Broken(Silence):
    def init(self, handle: Any) -> None:
        del handle
        raise OSError("no disk")


@pytest.mark.parametrize(
    ("processor", "change", "words"),
    [
        (Silence(), {"outputMode": "Complete"}, "'Complete'"),
        (Silence(), {"timeMode": "Never"}, "'Never'"),
        (Silence(), {"initialState": 1}, "a DataFrame by key"),
        (Silence(), {"onError": "ignore"}, "'ignore'"),
        (Silence(), {"eventTimeColumnName": "k"}, "no TIMESTAMP"),
        (Silence(), {"outputStructType": "k INTERVAL DAY"}, "column 'k'"),
        (Silence(), {"name": "a/b"}, "a/b"),
        (object(), {}, "StatefulProcessor"),
        (Locked(), {}, "cannot be pickled"),
        (Broken(), {}, "init raises OSError: no disk"),
        (Doing({"n": value("n BIGINT", 5)}, None), {}, "time to live"),
        (Doing({"timers": value("n BIGINT")}, None), {}, "'timers'"),
        (Doing({"n": value("n INTERVAL DAY")}, None), {}, "state 'n'"),
        (Doing({"n": lambda h, _: h.registerTimer(5)}, None), {}, "timers belong to a key"),
        (Doing({"n": lambda h, n: h.getValueState(n, "n INT").get()}, None), {}, "init raises"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(
    spark: SparkSession, processor: Any, change: dict[str, Any], words: str
) -> None:
    app = Application("app", spark)
    given = {
        "outputStructType": OUT, "outputMode": "Append", "timeMode": "EventTime", "name": "p",
    } | change  # fmt: skip
    with pytest.raises(ConfigurationError, match=words):
        app.stream("beats", BEAT).groupBy("device").transformWithState(processor, **given)
    assert not app.processes


def test_windows_are_refused(spark: SparkSession) -> None:
    app = Application("app", spark)
    grouped = app.stream("beats", BEAT).groupBy("device").windowedBy(TimeWindows("1 hour"))
    with pytest.raises(ConfigurationError, match="windowedBy"):
        grouped.transformWithState(Silence(), OUT, "Append", "None", name="p")


def test_states_that_changed_are_refused(spark: SparkSession) -> None:
    def topology(schema: str) -> Any:
        app = Application("app", spark)
        doing(Doing({"n": value(schema)}, None))(app)
        return app.topology

    assert contradictions(topology("n BIGINT"), topology("n BIGINT")) == []
    (found,) = contradictions(topology("n BIGINT"), topology("n TIMESTAMP"))
    assert "value struct<n:bigint>" in found
    assert "value struct<n:timestamp>" in found


def test_timers_and_lists_of_other_keys_or_times_are_refused(spark: SparkSession) -> None:
    """Old ones would be read as keys of the new type, or run all at once."""

    def topology(key: str, mode: str, asked: Any) -> Any:
        app = Application("app", spark)
        rows = app.stream("lines", "k STRING, n BIGINT").groupBy(key)
        rows.transformWithState(Doing(asked, None), OUT, "Append", mode, name="p")
        return app.topology

    of_text = topology("k", "EventTime", {})
    assert contradictions(of_text, topology("k", "EventTime", {})) == []
    (found,) = contradictions(of_text, topology("n", "EventTime", {}))
    assert "timers by int64, eventtime" in found
    (found,) = contradictions(of_text, topology("k", "ProcessingTime", {}))
    assert "timers by utf8, processingtime" in found
    for asked in ({"l": listed("n BIGINT")}, {"m": mapped("k STRING", "n BIGINT")}):
        of_both = contradictions(topology("k", "None", asked), topology("n", "None", asked))
        assert len(of_both) == 2, of_both


def test_other_code_is_told_from_the_same(spark: SparkSession) -> None:
    def fingerprint(processor: Any) -> str:
        app = Application("app", spark)
        doing(processor)(app)
        return app.fingerprint

    one = fingerprint(Doing({}, lambda *_: iter(())))
    assert fingerprint(Doing({}, lambda *_: iter(()))) == one
    assert fingerprint(Doing({}, lambda *_: iter([]))) != one
    assert fingerprint(Doing({"n": value("n BIGINT")}, lambda *_: iter(()))) != one
    assert fingerprint(Silence()) != one


def test_where_rows_go_is_told_from_what_a_processor_does(spark: SparkSession) -> None:
    def routing(processor: Any, column: str = "k") -> str:
        app = Application("app", spark)
        rows = app.stream("lines", "k STRING, l STRING").groupBy(column)
        rows.transformWithState(processor, OUT, "Append", "None", name="p").to("out")
        return app.routing

    one = routing(Doing({}, lambda *_: iter(())))
    assert routing(Doing({}, lambda *_: iter([]))) == one
    assert routing(Doing({}, lambda *_: iter(())), "l") != one
    app = Application("app", spark)
    app.stream("lines", "k STRING").groupBy("k").count("counts")
    assert not app.routing, "its fingerprint says it all"


def test_the_topology_says_what_it_keeps(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Application("app", spark)
    silence(app)
    app.describe()
    said = capsys.readouterr().out
    assert "stores: [silence-timers, silence-seen]" in said
    assert "topic: silent" in said
