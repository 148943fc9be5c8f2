"""Waits, in a trigger, for a connection that Airflow does not tell now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from state_lib.errors import Unavailable

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

T = TypeVar("T")
AGAIN_S = 5.0


async def when_told(ask: Callable[[], Awaitable[T]], log: Logger, until: float | None = None) -> T:
    """What ``ask`` gives, which reads the connection; while it cannot be read it is asked again.

    Args:
        ask: for it.
        log: told once why it is waited for.
        until: when to wait no longer, as wall time (s); None: never.

    Raises:
        Unavailable: it could not be read until then.
    """
    told = False
    while True:
        try:
            return await ask()
        except Unavailable as error:
            if until is not None and time.time() > until:
                raise
            if not told:
                log.warning("%s", error.message)
            told = True
        await asyncio.sleep(AGAIN_S)
