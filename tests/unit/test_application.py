"""What a job declares: its fingerprint, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from state_lib import Application, Json, Text, TimeWindows, agg
from state_lib.application import ValueFormat
from state_lib.durations import Duration
from state_lib.errors import ConfigurationError, InvalidName


def job(  # noqa: PLR0913 - each is one thing that may be edited
    *,
    partitions: int = 4,
    topic: str = "lines",
    format_: ValueFormat = Text(),  # noqa: B008 - frozen
    where: str = "x > 0",
    key: str = "k",
    expr: str = "x",
    size: Duration = "1 hour",
    grace: Duration = 0,
    store: str = "sums",
    backend: str = "rocksdb",
    to: str = "out",
) -> str:
    app = Application("app", partitions)
    rows = app.stream(topic, format_).where(where).group_by(key)
    windowed = rows.windowed_by(TimeWindows(size, grace=grace))
    windowed.aggregate(store, backend, total=agg.sum(expr)).to(to)  # type: ignore[arg-type]
    return app.fingerprint


def test_it_is_the_same_for_the_same() -> None:
    assert job() == job()
    assert job(size=timedelta(hours=1)) == job(), "the same in other words"
    assert job(backend="memory") == job(), "where entries lie decides nothing"


@pytest.mark.parametrize(
    "edited",
    [
        lambda: job(partitions=5),
        lambda: job(topic="others"),
        lambda: job(format_=Json("x BIGINT")),
        lambda: job(where="x >= 0"),
        lambda: job(key="upper(k)"),
        lambda: job(expr="x + 1"),
        lambda: job(size="2 hours"),
        lambda: job(grace="1 hour"),
        lambda: job(store="totals"),
        lambda: job(to="elsewhere"),
    ],
)
def test_it_changes_with_what_matters(edited: Callable[[], str]) -> None:
    assert edited() != job()


def test_one_topic_has_one_format() -> None:
    """What one of two can read and the other cannot would be counted and a dead letter at once."""
    app = Application("app")
    app.stream("lines", Text())
    app.stream("lines", Text()).where("value <> ''")
    with pytest.raises(ConfigurationError, match=r"reads topic 'lines' as Text\(\) already"):
        app.stream("lines", Json("x BIGINT"))


@pytest.mark.parametrize("field", ["k", "window_start", "window_end"])
def test_a_field_named_like_the_key_or_the_window_is_refused(field: str) -> None:
    """In an output one would hide the other."""
    rows = Application("app").stream("lines", Json("k STRING")).group_by("k")
    with pytest.raises(ConfigurationError, match=f"fields \\['{field}'\\]"):
        rows.windowed_by(TimeWindows("1 hour")).aggregate("sums", "rocksdb", **{field: agg.count()})
    if field != "k":
        rows.aggregate("sums", "rocksdb", **{field: agg.count()})


@pytest.mark.parametrize("name", ["__hf_x", "__HF_ts"])
def test_columns_that_begin_as_ours_are_refused(name: str) -> None:
    rows = Application("app").stream("lines", Text())
    for add in (rows.with_column, rows.explode):
        with pytest.raises(InvalidName, match="Holdfast"):
            add(name, "value")
