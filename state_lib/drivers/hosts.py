"""What is wrong with state hosts, as far as it explains why nothing is committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import httpx

from state_lib.errors import ConfigurationError
from state_lib.protocol.addresses import HostAddress

if TYPE_CHECKING:
    from state_lib.config import Settings

TIMEOUT_S = 2.0


def complaints(settings: Settings, app: str) -> tuple[str, ...]:
    """One sentence per host that does not answer, or has tasks of the application not open.

    All are asked at the same time, and none has longer than `TIMEOUT_S`, also if it drips.
    """
    headers = dict[bytes, bytes]()
    with contextlib.suppress(ConfigurationError):  # else hosts give counts, no names
        if (token := settings.read_token()) is not None:
            headers[b"Authorization"] = f"Bearer {token}".encode()
    found = asyncio.run(_complaints(settings.host_addresses, app, headers))
    return tuple(one for one in found if one is not None)


async def _complaints(
    hosts: Sequence[HostAddress], app: str, headers: dict[bytes, bytes]
) -> list[str | None]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        headers=headers, timeout=TIMEOUT_S, limits=limits, trust_env=False
    ) as client:
        return await asyncio.gather(*(_complaint(client, host, app) for host in hosts))


async def _complaint(client: httpx.AsyncClient, host: HostAddress, app: str) -> str | None:
    try:
        async with asyncio.timeout(TIMEOUT_S):  # httpx has a time-out only for each read
            answer = await client.get(f"{host.http_url}/readyz")
        body = answer.json()
        waiting = dict(body.get("not_ready", {}))
        count = int(body.get("waiting", len(waiting)))
    except (httpx.HTTPError, TimeoutError, ValueError, TypeError, AttributeError) as error:
        return f"host {host.id} at {host.http_url} does not answer ({type(error).__name__})"
    if count and not waiting:
        return f"host {host.id} has {count} tasks that are not open; with its token it says which"
    ours = [f"{one}: {why}" for one, why in waiting.items() if _concerns(app, one)]
    return f"host {host.id} has tasks that are not open: {'; '.join(ours)}" if ours else None


def _concerns(app: str, waiting: str) -> bool:
    """Whether it is a task of the application, the application itself, or none of both."""
    return waiting == app or waiting.startswith((f"{app}/", "("))
