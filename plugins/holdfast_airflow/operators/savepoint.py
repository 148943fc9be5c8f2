"""Takes an application at one commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast_airflow.operators.work import StateWorkOperator
from state_lib.protocol.stored import from_stored

if TYPE_CHECKING:
    from state_lib.reports.folder import Kind


class SavepointOperator(StateWorkOperator):
    """Takes every task at one and the same commit: for upgrades, copies, and going back to.

    The stream may run or not. It is listed only if it is complete, and kept until it is pruned.

    Args:
        wait: How long it may take until all tasks have met one commit.
        kwargs: As `ReportJobOperator`.

    Returns (as XCom): what ``holdfast snapshot savepoint APP --json`` prints: ``id``, ``epoch``,
    ``batch_number``, ``stream_time_ms``, ``positions`` and the ``snapshots``.
    """

    kind: ClassVar[Kind] = "savepoint"
    ui_color = "#d9d3f0"

    def __init__(self, *, wait: timedelta = timedelta(minutes=5), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def given(self) -> Mapping[str, Any]:
        """For how long."""
        return {"timeout_s": self.wait.total_seconds()}

    def judge(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell its id. Reports have the names that those of versions before have."""
        made = from_stored(result)
        at = (made["id"], self.app, made["epoch"], made["batch_number"])
        self.log.info("Savepoint %s of %s at commit %s/%s", *at)
        return made
