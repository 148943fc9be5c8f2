"""Calls of the driver itself to tasks, beside Spark: commits without rows, and a health check."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from state_lib.client.flight import FlightHostClient
from state_lib.errors import HoldfastError, Unavailable
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import ExchangePlan
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of

_LOOK_S = 1.0
_AT_ONCE = 16


@dataclass(frozen=True)
class Direct:
    """All tasks of an application, many at a time."""

    app: str
    hosts: tuple[HostAddress, ...]
    token: str | None

    def commit(self, plans: Mapping[int, ExchangePlan]) -> dict[int, Marker | Unavailable]:
        """Commit without rows to each task; returns the new markers, or why a task has none."""

        def one(task: int) -> Marker | Unavailable:
            with closing(self._client(task)) as client:
                try:
                    return exchange(plans[task], task, None, client)
                except Unavailable as error:
                    return error

        with ThreadPoolExecutor(min(_AT_ONCE, len(plans))) as pool:
            return dict(zip(plans, pool.map(one, plans), strict=True))

    def gone(self, away: Mapping[int, Unavailable]) -> dict[int, Unavailable]:
        """Of tasks that did not commit in time, those whose hosts do not answer.

        The others are merely slow.
        """

        def is_gone(task: int) -> bool:
            with closing(self._client(task)) as client:
                try:
                    client.marker(self.app, task, _LOOK_S)
                except HoldfastError:
                    return True
                return False

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {
                t: away[t] for t, gone in zip(away, pool.map(is_gone, away), strict=True) if gone
            }

    def _client(self, task: int) -> FlightHostClient:
        return FlightHostClient(owner_of(self.app, task, self.hosts), self.token)
