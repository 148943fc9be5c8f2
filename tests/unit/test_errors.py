"""Errors cross processes as themselves."""

from __future__ import annotations

import pickle

import orjson
import pytest

from state_lib import errors
from state_lib.changelog.writer import OutcomeUnknown, WriterOutdated
from state_lib.errors import HoldfastError, from_wire

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, HoldfastError)]


@pytest.mark.parametrize("cls", [*CLASSES, OutcomeUnknown, WriterOutdated])
def test_the_class_survives_wire_and_pickle(cls: type[HoldfastError]) -> None:
    error = cls("what to do", topic="t", seen=[1, 2])
    wired = from_wire(orjson.loads(orjson.dumps(error.to_wire())))
    for copy in (wired, pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own bytes
        assert type(copy) is cls
        assert (copy.message, copy.details, str(copy)) == (
            "what to do", {"topic": "t", "seen": [1, 2]}, "what to do",
        )  # fmt: skip


def test_codes_are_distinct() -> None:
    codes = [c.code for c in CLASSES]
    assert len(codes) > 15
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("body", [{"code": "from-the-future", "message": "m"}, {"message": "m"}])
def test_an_unknown_error_is_still_one(body: dict[str, object]) -> None:
    error = from_wire(body)
    assert type(error) is HoldfastError
    assert error.message == "m"


def test_every_error_has_a_status_of_its_kind() -> None:
    assert {c.__name__: c.http_status for c in CLASSES if c.http_status < 400} == {}
    assert errors.Realign.http_status == 409
    assert errors.Unavailable.http_status == 503
    assert errors.LogLost.http_status == 503, "who asks a task that is closed made no mistake"
