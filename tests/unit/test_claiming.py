"""Which claim takes a task: the higher epoch, and of equal ones only the very same claim."""

from __future__ import annotations

import pytest

from state_lib.errors import Superseded, TopicRecreated
from state_lib.protocol.marker import RESTORING, Marker, Verdict
from state_lib.task.claiming import judge_claim, would_take

MARKER = Marker(epoch=7, batch_number=3, claimed_in="old")


@pytest.mark.parametrize("topic_id", ["old", "new", ""])
def test_a_higher_epoch_takes_it_whatever_the_topic(topic_id: str) -> None:
    assert judge_claim("a/0", MARKER, 8, topic_id) is Verdict.APPLY
    assert judge_claim("a/0", Marker(), 0, topic_id) is Verdict.APPLY


@pytest.mark.parametrize("topic_id", ["old", ""])
def test_the_same_claim_has_it_already(topic_id: str) -> None:
    assert judge_claim("a/0", MARKER, 7, topic_id) is Verdict.ALREADY_DONE


@pytest.mark.parametrize("topic_id", ["old", ""])
def test_a_lower_epoch_is_superseded(topic_id: str) -> None:
    with pytest.raises(Superseded, match="epoch 7 has") as refused:
        judge_claim("a/0", MARKER, 6, topic_id)
    assert refused.value.details == {"epoch": 6, "current": 7}


@pytest.mark.parametrize("epoch", [0, 6, 7])
def test_in_another_topic_an_epoch_that_is_not_higher_is_another_drivers(epoch: int) -> None:
    """With the same one its first batches would be acknowledged, and not applied."""
    with pytest.raises(TopicRecreated) as refused:
        judge_claim("a-b/0", MARKER, epoch, "new")
    assert refused.value.details == {
        "topic": "a-b-topology",
        "expected_id": "old",
        "actual_id": "new",
        "epoch": epoch,
        "current": 7,
    }
    for said in (f"epoch {epoch} ", "epoch 7", "was old", "is new", "holdfast repair topology a-b"):
        assert said in refused.value.message


def test_markers_of_older_versions_do_not_say_the_topic() -> None:
    old = Marker(epoch=7, batch_number=3)
    assert judge_claim("a/0", old, 7, "new") is Verdict.ALREADY_DONE
    with pytest.raises(Superseded):
        judge_claim("a/0", old, 6, "new")


def test_a_claim_counts_if_all_tasks_would_take_it() -> None:
    markers = [MARKER, Marker(epoch=5, claimed_in="old"), Marker()]
    assert would_take("a", markers, 7, "old")
    assert would_take("a", markers, 8, "new")
    assert not would_take("a", markers, 6, "old")
    assert not would_take("a", markers, 7, "new")
    assert would_take("a", [], -1, "")


def test_after_a_restore_to_the_past_the_claim_of_before_stands() -> None:
    """It has an epoch and no claim: nobody must think that the topology topic was lost."""
    begun = Marker(epoch=9, claimed_in="old", state=RESTORING, back={"before": 7})
    ended = Marker(epoch=9, batch_number=1, claimed_in="old", rewound=9, back={"before": 7})
    assert would_take("a", [begun, ended, MARKER], 7, "old")
    assert not would_take("a", [ended], 6, "old")
    with pytest.raises(Superseded):
        judge_claim("a/0", ended, 7, "old")
