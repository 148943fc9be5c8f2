"""Verifies that snapshots are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from holdfast_airflow.operators.work import StateWorkOperator

if TYPE_CHECKING:
    from state_lib.reports.folder import Kind

SHOWN = 20


class VerifySnapshotsOperator(StateWorkOperator):
    """Looks whether snapshots are whole: their files and sizes, or every byte.

    The task fails, without a retry, if one is not; it is skipped if there is none at all.

    Args:
        snapshot: Id of a snapshot or a savepoint; None or empty: all, and what is not listed.
        deep: Read every byte and compare SHA-256; a file whose content was changed is set aside,
            and the next snapshot uploads it anew. A template renders ``True``.
        kwargs: As `ReportJobOperator`.

    Returns (as XCom): ``snapshots``, each with ``task``, ``snapshot`` and ``problems``; with their
    ``url`` also under the key ``report`` if the task fails.
    """

    kind: ClassVar[Kind] = "verification"
    template_fields: Sequence[str] = (*StateWorkOperator.template_fields, "snapshot", "deep")
    ui_color = "#e6e0f5"

    def __init__(
        self, *, snapshot: str | None = None, deep: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot = snapshot
        self.deep = deep

    def given(self) -> Mapping[str, Any]:
        """Which, and how."""
        return {"snapshot": self.snapshot or None, "deep": str(self.deep) == "True"}

    def judge(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what is not whole.

        Raises:
            AirflowFailException: something is not.
            AirflowSkipException: there is no snapshot.
        """
        found = result["snapshots"]
        if not found:
            raise AirflowSkipException(f"there is no snapshot of {self.app} in {result['url']}")
        bad = [one for one in found if one["problems"]]
        for one in bad[:SHOWN]:
            wrong = "; ".join(one["problems"][:3])
            self.log.error("snapshot %s of %s: %s", one["snapshot"], one["task"], wrong)
        if bad:
            first = bad[0]
            raise AirflowFailException(
                f"{len(bad)} of {len(found)} snapshots of {self.app} are not whole, first "
                f"{first['snapshot']} of {first['task']}: {first['problems'][0]}. Next: "
                f"'holdfast snapshot create {self.app}', or the DAG that takes them, uploads anew "
                "what is missing; read docs/runbook/snapshots.md"
            )
        how = "in every byte" if result["deep"] else "by files and sizes"
        self.log.info("%s: %s snapshots are whole, %s", self.app, len(found), how)
        return dict(result)
