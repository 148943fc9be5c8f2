"""The progress log is read from where a task stands, not from its beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from state_lib.changelog import progress
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.reader import read
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.positions import Positions
from tests.integration.conftest import MakeApp


def test_reading_begins_where_it_is_asked_to(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[int] = []

    def counted(*where: Any) -> Iterator[list[Any]]:
        for messages in read(*where):
            touched.extend(m.offset() or 0 for m in messages)
            yield messages

    monkeypatch.setattr(progress, "read", counted)
    app = make_app()
    log = ProgressLog(app.kafka, app.name)
    offsets = [append(log, n) for n in range(40)]
    assert [r.batch_number for r in log.read(offsets[37])] == [37, 38, 39]
    assert touched == offsets[37:], "a stream of a year has millions"
    assert [r.batch_number for r in log.read()] == list(range(40))
    assert log.read(offsets[39] + 1) == log.read(), "an offset of a topic that was before this one"


def append(log: ProgressLog, n: int) -> int:
    at, to = Positions({("t", 0): n}), Positions({("t", 0): n + 1})
    return log.append(BatchPlan(1, n, at, to, 0, 0, 0, {}).record())
