"""Which tasks take a processor's initial state, and when it is too late for it."""

from __future__ import annotations

import pytest

from state_lib.errors import ConfigurationError
from state_lib.protocol.marker import NO_INITIAL, Marker
from state_lib.spark.process.initial import lacking

NEVER, TOOK, NONE_OF_IT = Marker(), Marker(initial={"p": 5}), Marker(initial={"p": 0})
WITHOUT = Marker(initial={"p": NO_INITIAL})


def test_tasks_that_never_ran_it_take_it() -> None:
    assert lacking("app", "p", [NEVER, NEVER], given=True) == [0, 1]
    assert lacking("app", "p", [TOOK, NEVER, NONE_OF_IT], given=True) == [1]
    assert lacking("app", "p", [TOOK, NONE_OF_IT], given=True) == []
    assert lacking("app", "p", [Marker(initial={"q": 1})], given=True) == [0]


@pytest.mark.parametrize("markers", [[WITHOUT, WITHOUT], [NEVER, WITHOUT]])
def test_it_is_not_poured_over_states(markers: list[Marker]) -> None:
    with pytest.raises(ConfigurationError, match="have run it already without"):
        lacking("app", "p", markers, given=True)


def test_a_job_that_has_none_any_more() -> None:
    assert lacking("app", "p", [NEVER, WITHOUT], given=False) == []
    assert lacking("app", "p", [TOOK, NONE_OF_IT], given=False) == []
    with pytest.raises(ConfigurationError, match="or not all of it"):
        lacking("app", "p", [Marker(begun={"p": {"key": "61", "rows": 1}})], given=False)
    with pytest.raises(ConfigurationError, match=r"tasks \[1\] of 'app' have not taken"):
        lacking("app", "p", [TOOK, NEVER], given=False)
