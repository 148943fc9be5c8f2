"""What is wrong with state hosts, as far as it explains why nothing is committed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx

from state_lib.addresses import HostAddress

if TYPE_CHECKING:
    from state_lib.config import Settings

TIMEOUT_S = 2.0


def complaints(settings: Settings, app: str) -> tuple[str, ...]:
    """One sentence per host that does not answer, or has tasks of the application not open."""
    hosts = settings.host_addresses
    with ThreadPoolExecutor(min(8, len(hosts))) as pool:
        found = pool.map(lambda host: _complaint(host, app), hosts)
        return tuple(one for one in found if one is not None)


def _complaint(host: HostAddress, app: str) -> str | None:
    try:
        answer = httpx.get(f"{host.http_url}/readyz", timeout=TIMEOUT_S, trust_env=False)
        waiting = answer.json()["not_ready"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return f"host {host.id} at {host.http_url} does not answer ({type(error).__name__})"
    ours = [f"{task}: {why}" for task, why in waiting.items() if task.startswith(f"{app}/")]
    return f"host {host.id} has tasks that are not open: {'; '.join(ours)}" if ours else None
