"""Waits for a condition to hold, or for one that is known to be over, while a task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.hooks.holdfast import existing, settings_while_there
from state_lib.errors import ConfigurationError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from state_lib.checks.condition import Condition, Name
    from state_lib.config import Settings
    from state_lib.gathering.sensing import Look, Sense

READ_EVERY_S = 60.0
"""When the connection is read again: a watch lasts a day, and a person may change it meanwhile."""
ANSWER_S = 60.0
"""How long one look may take; every question in it has a shorter limit of its own."""
PATIENCE_S = 600.0
"""For how long a refused token or a wrong setting is looked at again: they are changed in steps, at
hosts, in Airflow, in a file that is just written."""


class ConditionTrigger(BaseTrigger):
    """Looks for one condition, and fires when it has held for long enough.

    Who cannot be asked is waited for, and told of once. Events: ``conditions`` that hold and were
    not known, each as `state_lib.checks.condition.Condition.to_json`, and ``over``: subjects that
    were known and are well again, with ``until`` and ``kept``; or ``error``, which a person must
    correct, and has not for `PATIENCE_S`.

    Args:
        app: The application.
        condition: Its name, one of `state_lib.checks.condition.CONDITIONS`.
        conn_id: The Holdfast connection; empty: none, and the triggerer's own settings count.
        found: Whether its task has found that connection. If so, and it cannot be read now, it is
            waited for; if not, the triggerer's own settings count until there is one.
        env: ``HOLDFAST_*`` variables that win over it.
        poke_interval: Seconds between looks.
        hold_s: Seconds for which it must hold, so that one missed answer is no alarm.
        calm_s: Seconds for which it must not hold any more; None: as `Holding`.
        blind_s: Seconds for which nobody can be asked, whyever, until that is told as a condition
            as well: ``cannot-look``, whose subject is the condition's name. There is no ``error``
            then. None: never.
        known: Subjects of which it is known that it holds.
        until: When to look no longer, as wall time (s), with an event of nothing new; None: never.
            What begins to hold, or to be over, shortly before is looked at until that is decided.
        options: More arguments of `state_lib.gathering.sensing.Sense`.
        kept: What the operator wants back.
    """

    def __init__(  # noqa: PLR0913 - Airflow makes it again from these
        self,
        app: str,
        condition: Name,
        conn_id: str = "",
        env: dict[str, str] | None = None,
        *,
        found: bool = True,
        poke_interval: float = 5.0,
        hold_s: float = 0.0,
        calm_s: float | None = None,
        blind_s: float | None = None,
        known: Sequence[str] = (),
        until: float | None = None,
        options: dict[str, Any] | None = None,
        kept: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.condition, self.conn_id, self.env = app, condition, conn_id, env or {}
        self.found = found and bool(conn_id)
        self.poke_interval, self.hold_s, self.calm_s = poke_interval, hold_s, calm_s
        self.blind_s = blind_s
        self.known, self.until, self.options = list(known), until, options or {}
        self.kept = kept or {}
        self._sense: Sense | None = None
        self._known: Settings | None = None
        self._read_at = 0.0
        self._blind: str | None = None
        self._asking: asyncio.Future[Look] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "condition", "conn_id", "env", "found", "poke_interval", "hold_s", "calm_s")
        more = ("blind_s", "known", "until", "options", "kept")
        return path, {name: getattr(self, name) for name in (*names, *more)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something new."""
        from state_lib.checks.holding import Holding

        # Kafka's clients are for one thread, and none of this may hold up Airflow's other triggers.
        thread = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-{self.condition}-{self.app}")
        known = set(self.known)
        holding = Holding(self.hold_s, known - {self.condition}, self.calm_s)
        patience_s = PATIENCE_S if self.blind_s is None else self.blind_s
        blindness = Holding(patience_s, known & {self.condition}, 0.0)
        try:
            while True:
                look = await self._answer(thread)
                self._tell(look.blind)
                now = time.monotonic()
                blind, sees = blindness.feed(self._blindness(look), None, now)
                if blind and self.blind_s is None:
                    yield TriggerEvent({"error": look.blind})  # type: ignore[no-untyped-call]
                    return
                began, over = holding.feed(look.conditions, look.sure, now)
                began, over = [*began, *blind], [*over, *sees]
                if began or over or (self._is_over and not holding.undecided):
                    said = {"conditions": [c.to_json() for c in began], "over": over}
                    more = {"until": self.until, "kept": self.kept}
                    yield TriggerEvent({**said, **more})  # type: ignore[no-untyped-call]
                    return
                await asyncio.sleep(self.poke_interval)
        finally:
            thread.submit(self._close)  # after the look that is under way; nobody waits for it
            thread.shutdown(wait=False)

    @property
    def _is_over(self) -> bool:
        return self.until is not None and time.time() > self.until

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
        from state_lib.gathering.sensing import NOTHING, Look

        try:
            if self._sense is None or time.monotonic() - self._read_at > READ_EVERY_S:
                self._sense = self._renewed()
            return self._sense.look()
        except Unavailable as error:  # the connection cannot be read
            return Look(sure=NOTHING, blind=error.message)
        except (ConfigurationError, Unauthorized) as error:
            self._close()  # the next look reads the connection anew
            return Look(sure=NOTHING, blind=error.message, wrong=True)

    def _renewed(self) -> Sense:
        """By the connection as it is now: a person may have made, changed or deleted it."""
        from state_lib.gathering.sensing import Sense

        self._read_at = time.monotonic()
        try:
            conn_id = self.conn_id if self.found else existing(self.conn_id)
            settings = settings_while_there(conn_id, self.env)
        except Unavailable:
            if self._sense is None:
                raise
            return self._sense  # Airflow does not tell it now: by what it told last
        if self._sense is not None and settings == self._known:
            return self._sense
        self._close()
        self._known = settings
        return Sense(settings, self.app, self.condition, **self.options)

    def _blindness(self, look: Look) -> list[Condition]:
        """As a condition, if it counts as one."""
        from state_lib.checks.conditions import cannot_look

        counts = look.wrong if self.blind_s is None else look.shows_nothing
        return [cannot_look(self.app, self.condition, look.blind or "")] if counts else []

    def _tell(self, blind: str | None) -> None:
        if blind is not None and self._blind is None:
            self.log.warning("Cannot look for %s of %s now: %s", self.condition, self.app, blind)
        elif blind is None and self._blind is not None:
            self.log.info("Looking for %s of %s again", self.condition, self.app)
        self._blind = blind

    def _close(self) -> None:
        if self._sense is not None:
            self._sense.close()
            self._sense = None
