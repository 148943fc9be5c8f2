"""When a plan of before may still be carried out: two plans in, a refusal out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.changelog.log import LogRange
from state_lib.errors import InvalidRequest, PlanStale, from_wire
from state_lib.restore.facts import LocalFacts
from state_lib.restore.plan import CHANGELOG, RestorePlan, make_plan
from state_lib.task.asked import is_done, planned_now, refuse_if_stale
from tests.unit.restore.test_plan import KV_LOG, NOW, checkpoint, facts

GONE = make_plan(facts(None, "there is no directory"))
CORRUPT = make_plan(replace(facts(None), local=LocalFacts(None, "cannot be opened", 5_000_000)))
OLD, OTHER = (make_plan(facts(checkpoint(n=n, offset=99))) for n in (5, 6))
"""For directories that are not valid any more."""
WISH = make_plan(facts(checkpoint()), CHANGELOG)


def test_a_wish_is_no_rescue() -> None:
    assert (GONE.is_rescue, CORRUPT.is_rescue, WISH.is_rescue) == (True, True, False)
    assert (GONE.discards, bool(CORRUPT.discards), bool(WISH.discards)) == ((), True, True)


def test_a_plan_has_an_identity() -> None:
    same = RestorePlan.from_json(GONE.to_json())
    assert (same, same.id) == (GONE, GONE.id)
    later = make_plan(facts(None, "there is no directory", now=NOW + 1))
    assert later.made_at == NOW + 1
    assert len({GONE.id, CORRUPT.id, WISH.id, later.id}) == 4


@pytest.mark.parametrize(
    ("plan", "now"),
    [
        (GONE, GONE),
        (CORRUPT, CORRUPT),
        (OLD, OLD),
        (WISH, WISH),
        (CORRUPT, GONE),
        (OLD, GONE),
        (WISH, CORRUPT),
    ],
)
def test_what_is_the_same_or_discards_less_goes_on(plan: RestorePlan, now: RestorePlan) -> None:
    refuse_if_stale(plan, replace(now, batch_number=now.batch_number + 5, records=7))


@pytest.mark.parametrize(
    ("plan", "now", "why"),
    [
        (GONE, CORRUPT, "it would replace the present directory"),
        (GONE, WISH, "it would replace the present directory"),
        (OLD, OTHER, r"at commit 3/6\).*; it was made for one at commit 3/5"),
        (CORRUPT, OLD, r"at commit 3/5\).*; it was made for one that cannot be opened"),
        (CORRUPT, WISH, "can be used again"),
        (GONE, make_plan(facts(checkpoint())), "can be used again"),
    ],
)
def test_what_discards_more_is_refused(plan: RestorePlan, now: RestorePlan, why: str) -> None:
    with pytest.raises(PlanStale, match=why) as refused:
        refuse_if_stale(plan, now)
    assert "'holdfast restore plan app --task 2'" in refused.value.message
    assert refused.value.details["plan"] == plan.id
    assert isinstance(from_wire(refused.value.to_wire()), PlanStale)


def test_other_topics_are_refused() -> None:
    logs = {KV_LOG: LogRange("new", 0, 10)}
    now = replace(GONE, offsets={**GONE.offsets, KV_LOG: ["new", logs[KV_LOG].end]})
    with pytest.raises(PlanStale, match=KV_LOG):
        refuse_if_stale(GONE, now)


def test_a_task_that_is_open_again_and_has_other_topics_is_not_what_was_planned(
    tmp_path: Path,
) -> None:
    """Of another Kafka, where an application of that name runs as well."""
    same = {topic: list(end) for topic, end in GONE.offsets.items()}
    assert is_done(GONE, tmp_path, same)
    assert not is_done(GONE, tmp_path, None)
    assert not is_done(WISH, tmp_path, same)
    with pytest.raises(PlanStale, match=KV_LOG):
        is_done(GONE, tmp_path, {**same, KV_LOG: ["new", 10]})


def test_a_source_that_is_gone_is_refused() -> None:
    def ask(wanted: str) -> RestorePlan:
        return make_plan(facts(None, "there is no directory"), wanted)

    assert planned_now(GONE, ask) == GONE
    with pytest.raises(PlanStale, match="no source 'pruned'"):
        planned_now(replace(GONE, source="snapshot", snapshot="pruned"), ask)


@pytest.mark.parametrize("wrong", [{}, {"task": "app/2"}, {**GONE.to_json(), "more": 1}])
def test_what_is_no_plan_says_so(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="not a plan as 'holdfast restore plan APP --json'"):
        RestorePlan.from_json(wrong)
