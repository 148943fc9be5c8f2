"""What hosts hold of applications, asked of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from state_lib.client.flight import LOOK_S, FlightHostClient
from state_lib.errors import Unavailable
from state_lib.protocol.addresses import HostAddress


@dataclass(frozen=True)
class Held:
    """One host's answer.

    ``apps`` and ``disk`` as `state_lib.host.holdings`; ``away``: why there is none.
    """

    host: str
    apps: dict[str, dict[str, Any]] = field(default_factory=dict)
    away: str | None = None
    disk: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Hosts:
    """All configured hosts, and the token that they want."""

    addresses: Sequence[HostAddress]
    token: str | None

    def held(
        self, app: str | None = None, timeout_s: float = LOOK_S, *, brief: bool = False
    ) -> list[Held]:
        """What each host holds, of one application or of all.

        Args:
            app: its id.
            timeout_s: a host that has not finished its answer by then counts as away.
            brief: only the states of tasks.

        Raises:
            Unauthorized: a host refused the token.
        """
        return self._each(lambda client: client.holdings(app, timeout_s, brief=brief))

    def forget(self, app: str, epoch: int) -> list[Held]:
        """Let every host drop an application; what each had of it.

        Raises:
            InvalidRequest, Unauthorized: as the hosts say.
        """
        return self._each(lambda client: client.forget(app, epoch))

    def _each(self, ask: Callable[[FlightHostClient], dict[str, Any]]) -> list[Held]:
        def one(address: HostAddress) -> Held:
            with closing(FlightHostClient(address, self.token)) as client:
                try:
                    said = ask(client)
                    return Held(address.id, said["apps"], disk=said.get("disk", {}))
                except Unavailable as error:
                    return Held(address.id, away=error.message)

        with ThreadPoolExecutor(max(1, min(16, len(self.addresses)))) as pool:
            return list(pool.map(one, self.addresses))
