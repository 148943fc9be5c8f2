"""What is wrong with state hosts, as far as it explains why nothing is committed."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx

from state_lib.addresses import HostAddress
from state_lib.errors import ConfigurationError

if TYPE_CHECKING:
    from state_lib.config import Settings

TIMEOUT_S = 2.0


def complaints(settings: Settings, app: str) -> tuple[str, ...]:
    """One sentence per host that does not answer, or has tasks of the application not open."""
    hosts, headers = settings.host_addresses, dict[bytes, bytes]()
    with contextlib.suppress(ConfigurationError):  # then hosts say how many, and no names
        if (token := settings.read_token()) is not None:
            headers[b"Authorization"] = f"Bearer {token}".encode()
    with ThreadPoolExecutor(min(8, len(hosts))) as pool:
        found = pool.map(lambda host: _complaint(host, app, headers), hosts)
        return tuple(one for one in found if one is not None)


def _complaint(host: HostAddress, app: str, headers: dict[bytes, bytes]) -> str | None:
    url = f"{host.http_url}/readyz"
    try:
        answer = httpx.get(url, headers=headers, timeout=TIMEOUT_S, trust_env=False)
        body = answer.json()
        waiting = dict(body.get("not_ready", {}))
        count = int(body.get("waiting", len(waiting)))
    except (httpx.HTTPError, ValueError, TypeError, AttributeError) as error:
        return f"host {host.id} at {host.http_url} does not answer ({type(error).__name__})"
    if count and not waiting:
        return f"host {host.id} has {count} tasks that are not open; with its token it says which"
    ours = [f"{one}: {why}" for one, why in waiting.items() if _concerns(app, one)]
    return f"host {host.id} has tasks that are not open: {'; '.join(ours)}" if ours else None


def _concerns(app: str, waiting: str) -> bool:
    """Whether it is a task of the application, the application itself, or none of both."""
    return waiting == app or waiting.startswith((f"{app}/", "("))
