"""What Airflow remembers of an application between runs: its driver, and who supervises it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.drivers.process import DriverProcess

DRIVER, SUPERVISOR, SUBMISSION = "driver", "supervisor", "submission"
FIRST_LOOK, HEEDS_FROM = "first_look", "heeds_from"
AT_WORK = ("running", "deferred", "queued", "scheduled", "restarting", "up_for_retry")


def app_asset(app: str) -> Asset:
    """The asset that stands for an application; its state store outlives DAG runs."""
    return Asset(f"holdfast://app/{app}")


def supervising_try(app: str) -> int | None:
    """Which try of its task supervises an application, or did last; None if none is known."""
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor  # noqa: PLC0415

    known: Any = AssetStateStoreAccessor(name=app_asset(app).name).get(SUPERVISOR)
    return known.get("try") if known else None


@dataclass(frozen=True)
class FirstLook:
    """Of an earlier try of a task.

    Attributes:
        heard: the offset after what was said to drivers then.
        cleared: whether a user has cleared the task since.
    """

    heard: int
    cleared: bool


class Watched:
    """The asset's state store, for one task that has the asset as an inlet."""

    def __init__(self, context: Context, app: str) -> None:
        self._app = app
        self.ti: Any = context["ti"]
        self._store: Any = context["asset_state_store"][app_asset(app)]

    def driver(self) -> DriverProcess | None:
        """The driver that was launched or adopted last."""
        from state_lib.drivers.process import DriverProcess

        known = self._store.get(DRIVER)
        if not known:
            return None
        return DriverProcess.from_json({k: v for k, v in known.items() if k != HEEDS_FROM})

    def heeds_from(self) -> int:
        """The offset from which on `driver` heeds requests; -1 if that is not known."""
        return int((self._store.get(DRIVER) or {}).get(HEEDS_FROM, -1))

    def keep(self, process: DriverProcess, heeds_from: int | None = None) -> None:
        """Remember a driver, and that this task watches it.

        Args:
            process: the driver.
            heeds_from: see `heeds_from`; None leaves what is known of this driver.
        """
        known = self._store.get(DRIVER) or {}
        if heeds_from is None:
            heeds_from = known.get(HEEDS_FROM, -1) if known.get("id") == process.id else -1
        self._store.set(DRIVER, {**process.to_json(), HEEDS_FROM: heeds_from})
        self._store.set(SUPERVISOR, {**self._me(), "try": self.ti.try_number})

    def first_look(self) -> FirstLook | None:
        """What an earlier try of this task has found at first; None at the very first."""
        known = self._store.get(FIRST_LOOK)
        me = self._me()
        if not known or {key: known[key] for key in me} != me:
            return None
        # A clear sets `max_tries` anew, a retry does not.
        return FirstLook(known["heard"], cleared=known["max_tries"] != self.ti.max_tries)

    def keep_first_look(self, heard: int) -> None:
        """Remember where the requests end that were there before this task, or its clear."""
        looked = {**self._me(), "max_tries": self.ti.max_tries, "heard": heard}
        self._store.set(FIRST_LOOK, looked)

    def keep_submission(self, driver: str, submission: dict[str, str]) -> None:
        """Remember what the cluster calls a driver that runs inside it."""
        self._store.set(SUBMISSION, {"driver": driver, "submission": submission})

    def submission(self, driver: str) -> dict[str, str] | None:
        """What the cluster calls a driver; None of one that runs elsewhere."""
        known = self._store.get(SUBMISSION)
        if not known or known["driver"] != driver:
            return None
        found: dict[str, str] = known["submission"]
        return found

    def other_supervisor(self) -> str | None:
        """Another task that supervises the application now, in words; None if there is none."""
        other = self._store.get(SUPERVISOR)
        me = self._me()
        if not other or {key: other[key] for key in me} == me:
            return None
        states = self.ti.get_task_states(
            dag_id=other["dag_id"], task_ids=[other["task_id"]], run_ids=[other["run_id"]]
        )
        state = states.get(other["run_id"], {}).get(other["task_id"])
        if state not in AT_WORK:
            return None
        return (
            f"task {other['task_id']} of run {other['run_id']} of DAG {other['dag_id']} ({state})"
        )

    def _me(self) -> dict[str, str]:
        ti = self.ti
        return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id}
