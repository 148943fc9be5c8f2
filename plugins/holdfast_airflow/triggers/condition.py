"""Waits for a condition to hold, or for one that is known to be over, while a task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.hooks.holdfast import HoldfastHook
from state_lib.errors import ConfigurationError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from state_lib.checks.condition import Name
    from state_lib.gathering.sensing import Look, Sense

ANSWER_S = 60.0
"""How long one look may take; every question in it has a shorter limit of its own."""


class ConditionTrigger(BaseTrigger):
    """Looks for one condition, and fires when it has held for long enough.

    Who cannot be asked is waited for, and told of once. Events: ``conditions`` that hold and were
    not known, each as `state_lib.checks.condition.Condition.to_json`, and ``over``: subjects that
    were known and are well again, with ``until``; or ``error``, which a person must correct.

    Args:
        app: The application.
        condition: Its name, one of `state_lib.checks.condition.CONDITIONS`.
        conn_id: The Holdfast connection; empty: there is none, and the triggerer's own settings
            count. One that there was and that cannot be read is waited for.
        env: ``HOLDFAST_*`` variables that win over it.
        poke_interval: Seconds between looks.
        hold_s: Seconds for which it must hold, so that one missed answer is no alarm.
        calm_s: Seconds for which it must not hold any more; None: as `Holding`.
        known: Subjects of which it is known that it holds.
        until: When to look no longer, as wall time (s), with an event of nothing new; None: never.
        options: More arguments of `state_lib.gathering.sensing.Sense`.
    """

    def __init__(  # noqa: PLR0913 - Airflow makes it again from these
        self,
        app: str,
        condition: Name,
        conn_id: str = "",
        env: dict[str, str] | None = None,
        *,
        poke_interval: float = 5.0,
        hold_s: float = 0.0,
        calm_s: float | None = None,
        known: Sequence[str] = (),
        until: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.condition, self.conn_id, self.env = app, condition, conn_id, env or {}
        self.poke_interval, self.hold_s, self.calm_s = poke_interval, hold_s, calm_s
        self.known, self.until, self.options = list(known), until, options or {}
        self._sense: Sense | None = None
        self._blind: str | None = None
        self._asking: asyncio.Future[Look] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "condition", "conn_id", "env", "poke_interval", "hold_s", "calm_s")
        return path, {name: getattr(self, name) for name in (*names, "known", "until", "options")}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something new."""
        from state_lib.checks.holding import Holding

        # Kafka's clients are for one thread, and none of this may hold up Airflow's other triggers.
        thread = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-{self.condition}-{self.app}")
        holding = Holding(self.hold_s, self.known, self.calm_s)
        try:
            while True:
                look = await self._answer(thread)
                self._tell(look.blind)
                began, over = holding.feed(look.conditions, look.sure, time.monotonic())
                if began or over or (self.until is not None and time.time() > self.until):
                    said = {"conditions": [c.to_json() for c in began], "over": over}
                    said["until"] = self.until
                    yield TriggerEvent(said)  # type: ignore[no-untyped-call]
                    return
                await asyncio.sleep(self.poke_interval)
        except (ConfigurationError, Unauthorized) as error:
            yield TriggerEvent({"error": error.message})  # type: ignore[no-untyped-call]
        finally:
            thread.submit(self._close)  # after the look that is under way; nobody waits for it
            thread.shutdown(wait=False)

    async def _answer(self, thread: ThreadPoolExecutor) -> Look:
        """A look; one that takes too long shows nothing, and the next waits for it."""
        from state_lib.gathering.sensing import NOTHING, Look

        if self._asking is None:
            self._asking = asyncio.get_running_loop().run_in_executor(thread, self._look)
        done, _ = await asyncio.wait({self._asking}, timeout=ANSWER_S)
        if not done:
            return Look(sure=NOTHING, blind=f"no answer for {ANSWER_S:.0f} s and more")
        asked, self._asking = self._asking, None
        return asked.result()

    def _look(self) -> Look:
        from state_lib.gathering.sensing import NOTHING, Look, Sense

        if self._sense is None:
            try:
                settings = HoldfastHook(self.conn_id, self.env, found=True).settings
            except Unavailable as error:
                return Look(sure=NOTHING, blind=error.message)
            self._sense = Sense(settings, self.app, self.condition, **self.options)
        return self._sense.look()

    def _tell(self, blind: str | None) -> None:
        if blind is not None and self._blind is None:
            self.log.warning("Cannot look for %s of %s now: %s", self.condition, self.app, blind)
        elif blind is None and self._blind is not None:
            self.log.info("Looking for %s of %s again", self.condition, self.app)
        self._blind = blind

    def _close(self) -> None:
        if self._sense is not None:
            self._sense.close()
