"""What Airflow remembers of an application between runs: its driver, and who supervises it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.drivers.process import DriverProcess

DRIVER, SUPERVISOR, SUBMISSION = "driver", "supervisor", "submission"
AT_WORK = ("running", "deferred", "queued", "scheduled", "restarting", "up_for_retry")


def app_asset(app: str) -> Asset:
    """The asset that stands for an application; its state store outlives DAG runs."""
    return Asset(f"holdfast://app/{app}")


def supervising_try(app: str) -> int | None:
    """Which try of its task supervises an application, or did last; None if none is known."""
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor  # noqa: PLC0415

    known: Any = AssetStateStoreAccessor(name=app_asset(app).name).get(SUPERVISOR)
    return known.get("try") if known else None


class Watched:
    """The asset's state store, for one task that has the asset as an inlet."""

    def __init__(self, context: Context, app: str) -> None:
        self._app = app
        self._ti: Any = context["ti"]
        self._store: Any = context["asset_state_store"][app_asset(app)]

    def driver(self) -> DriverProcess | None:
        """The driver that was launched or adopted last."""
        from state_lib.drivers.process import DriverProcess

        known = self._store.get(DRIVER)
        return DriverProcess.from_json(known) if known else None

    def keep(self, process: DriverProcess) -> None:
        """Remember a driver, and that this task watches it."""
        self._store.set(DRIVER, process.to_json())
        self._store.set(SUPERVISOR, {**self._me(), "try": self._ti.try_number})

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
        states = self._ti.get_task_states(
            dag_id=other["dag_id"], task_ids=[other["task_id"]], run_ids=[other["run_id"]]
        )
        state = states.get(other["run_id"], {}).get(other["task_id"])
        if state not in AT_WORK:
            return None
        return (
            f"task {other['task_id']} of run {other['run_id']} of DAG {other['dag_id']} ({state})"
        )

    def _me(self) -> dict[str, str]:
        ti = self._ti
        return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id}
