import pytest

from benchmarks.measure import HOLDFAST, PEER, Differ, Measurement, check_same
from benchmarks.summary import summarize


def run(value: float, **facts: float) -> Measurement:
    return Measurement(value, cpu_s=value / 10, peak_mib=int(value), facts=facts)


ROUNDS = [
    {HOLDFAST: run(300, late=1), PEER: run(100)},
    {HOLDFAST: run(100, late=5), PEER: run(50)},
    {HOLDFAST: run(200, late=3, odd=9), PEER: run(200)},
]


def test_medians_and_spreads_over_rounds() -> None:
    ours, peer = summarize(ROUNDS, more_is_better=True)
    assert (ours.contender, ours.rounds) == (HOLDFAST, 3)
    assert (ours.median, ours.least, ours.most) == (200, 100, 300)
    assert (ours.cpu_s, ours.peak_mib) == (20, 200)
    assert (peer.median, peer.least, peer.most) == (100, 50, 200)


def test_ratios_are_those_of_each_round() -> None:
    ours, peer = summarize(ROUNDS, more_is_better=True)
    assert (ours.ratio, ours.ratios) == (2, (1, 3))
    assert (peer.ratio, peer.ratios) == (1, (1, 1))


def test_less_time_is_a_greater_ratio() -> None:
    ours, _ = summarize(ROUNDS[:1], more_is_better=False)
    assert ours.ratio == pytest.approx(1 / 3)


def test_without_a_peer_there_is_no_ratio() -> None:
    (ours,) = summarize([{HOLDFAST: run(3)}], more_is_better=True)
    assert (ours.ratio, ours.ratios) == (None, None)


def test_facts_that_every_round_has_are_kept() -> None:
    ours, _ = summarize(ROUNDS, more_is_better=True)
    assert ours.facts == {"late": 3}


def test_contenders_that_differ_are_an_error() -> None:
    one = Measurement(1, 1, 1, same={"entries": 5, "digest": "aa"})
    check_same({HOLDFAST: one, PEER: one, "knows less": Measurement(1, 1, 1, same={"entries": 5})})
    with pytest.raises(Differ, match="entries: holdfast has 5, kafka streams has 6"):
        check_same({HOLDFAST: one, PEER: Measurement(1, 1, 1, same={"entries": 6})})
