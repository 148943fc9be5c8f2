"""Looks at an application for a trigger, without holding up Airflow's other triggers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from holdfast_airflow.settings import settings_of

if TYPE_CHECKING:
    from state_lib.drivers.look import Looker
    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import Sight

T = TypeVar("T")
LOOK_EVERY_S = 1.5
ASK_CLUSTER_EVERY_S = 15.0


class Watch:
    """Looks at an application from a thread of its own: Kafka's clients are for one thread."""

    def __init__(
        self, app: str, env: dict[str, str], submission: dict[str, str] | None = None
    ) -> None:
        self._app, self._env, self._submission = app, env, submission
        self._active: bool | None = None
        self._asked_at = float("-inf")
        self._looker: Looker | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-{app}")

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def observe(self, process: DriverProcess | None) -> tuple[Sight, bool | None, list[str]]:
        """A look, whether the process lives, and its log's end if it does not."""

        def look() -> tuple[Sight, bool | None, list[str]]:
            from state_lib.drivers.look import observe

            active = self._active_in_cluster()
            sight, alive = observe(self._made(), process)
            alive = active if alive is None else alive
            said = process.last_lines() if process is not None and not alive else []
            return sight, alive, said

        return await self.call(look)

    def close(self) -> None:
        """Free clients and thread, after the look that is under way; does not wait."""
        if self._looker is not None:
            self._thread.submit(self._looker.close)
        self._thread.shutdown(wait=False)

    def _active_in_cluster(self) -> bool | None:
        """What the cluster says of the driver; None where there is none, or it does not say."""
        if self._submission is None or time.monotonic() - self._asked_at < ASK_CLUSTER_EVERY_S:
            return self._active
        from holdfast_airflow.hooks.cluster import Submission  # noqa: PLC0415

        self._asked_at = time.monotonic()
        self._active = Submission(**self._submission).seen()
        return self._active

    def _made(self) -> Looker:
        from state_lib.drivers.look import Looker

        if self._looker is None:
            self._looker = Looker(settings_of(self._env), self._app)
        return self._looker
