"""Journeys back in time as values: what approves them, and how people read them."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from holdfast_airflow.journeys import as_markdown, goes, headline, in_a_line, journey_of
from holdfast_airflow.plans import partitions_of
from state_lib.apps.past import Journey
from state_lib.errors import InvalidRequest
from state_lib.restore.past import PastPlan

NOON = 1_800_000_000_000
GOES = PastPlan(
    task="app/0",
    snapshot="20260131T120000000Z-1a2b3c4d",
    epoch=3,
    batch_number=7,
    written_at=NOON,
    positions={"source": {"0": 70}},
    topic_ids={"source": "id"},
    recorded=5,
    stream_time_ms=NOON,
    from_epoch=4,
    from_batch_number=9,
    published={"source": {"0": 90}},
    records=20,
    bytes=4_000_000,
    republish=False,
    batches=2,
    codes=("code",),
    discards=("the state of commit 4/9",),
    back_by="somebody",
    back_at=NOON,
)
STANDS = replace(GOES, task="app/1", epoch=4, batch_number=9, discards=())
JOURNEY = Journey("app", (GOES, STANDS), ("driver-1",))


def test_a_journey_survives_json() -> None:
    plain = JOURNEY.to_json()
    assert orjson.loads(orjson.dumps(plain)) == plain, "what JSON has, and nothing else"
    assert journey_of(plain) == JOURNEY
    assert journey_of(None) is None
    for wrong in ({}, {"app": "app"}, {"app": "app", "plans": [{"task": "app/0"}], "drivers": []}):
        with pytest.raises(InvalidRequest, match="not a plan as"):
            journey_of(wrong)


def test_what_was_approved_is_where_it_leads_and_not_how_far_the_stream_has_come() -> None:
    later = replace(GOES, from_batch_number=99, records=900, discards=("the state of commit 4/99",))
    assert replace(JOURNEY, plans=(later, STANDS), drivers=()).id == JOURNEY.id
    for other in (
        replace(GOES, snapshot="20260130T120000000Z-1a2b3c4d"),
        replace(GOES, task="app/2"),
        replace(GOES, republish=True),
    ):
        assert replace(JOURNEY, plans=(other, STANDS)).id != JOURNEY.id


def test_who_is_asked_reads_what_is_lost_and_who_ends() -> None:
    assert goes(JOURNEY)
    assert not goes(replace(JOURNEY, plans=(STANDS,)))
    assert not goes(None)
    assert headline(JOURNEY).startswith("Take app/0 of app back in time?")
    said = as_markdown(JOURNEY)
    assert (
        "| app/0 | `20260131T120000000Z-1a2b3c4d` | 2027-01-15T08:00:00.000Z | 3/7 | 20 |" in said
    )
    assert "- **discarded** of app/0: the state of commit 4/9" in said
    assert "- driver driver-1 ends at a batch's edge" in said
    assert "it stands there" in said
    assert "discards the state of commit 4/9" in in_a_line(GOES)
    assert "nothing to do" in in_a_line(STANDS)


def test_tasks_as_files_tasks_and_templates_name_them() -> None:
    for nothing in (None, list[int](), "", "[]"):
        assert partitions_of("app", nothing) == []
    for given in ([0, 2], ["app/0", 2], "[0, 2]", "['app/0', 'app/2']", "0, app/2", "0 2"):
        assert partitions_of("app", given) == [0, 2]
    assert partitions_of("app", 0) == [0], "no list is all, and this is one"
    for wrong in ("None", ["other/0"], "0_1", "[-1]"):
        with pytest.raises(InvalidRequest, match="no task of 'app'"):
            partitions_of("app", wrong)
