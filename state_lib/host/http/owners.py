"""Keys of other hosts' tasks: this host asks the owner and passes its answer on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import quote

import httpx
import orjson
from fastapi import FastAPI, Request, Response

from state_lib.errors import HoldfastError, InvalidRequest, NotFound, NotOwner, Unavailable
from state_lib.host.tasks import TaskManager
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of

FORWARDED = "Holdfast-Forwarded"
"""Header of a request that a host passes on, with that host's id: it is passed on no further."""
MISDIRECTED = 421
ANSWER_S, CONNECT_S = 15.0, 2.0
"""How long others may take to answer, all in all, and one to be reached."""
MOST_WAITING = 64
"""Requests of one owner that are waited for at a time: each holds two connections of this host."""
_UNAUTHORIZED = 401
_OF_ONE_HOP = frozenset(
    {"connection", "content-encoding", "content-length", "date", "keep-alive", "transfer-encoding"}
)


class Owners:
    """The other hosts, over HTTP.

    Args:
        tasks: of this host.
        token: of all hosts; None: they want none.
    """

    def __init__(self, tasks: TaskManager, token: str | None) -> None:
        self._tasks = tasks
        self._waiting = Counter[str]()
        headers = {FORWARDED.encode(): tasks.context.host_id.encode()}
        if token is not None:
            headers[b"Authorization"] = f"Bearer {token}".encode()
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # Closed by this side before the other side does, maybe during a request.
            limits=httpx.Limits(keepalive_expiry=2.0),
            trust_env=False,  # an outgoing proxy does not reach these hosts
        )

    @asynccontextmanager
    async def connected(self, _: FastAPI) -> AsyncIterator[None]:
        """The lifespan of an application: its connections are closed at the end."""
        async with self._http:
            yield

    async def answer(self, request: Request, error: HoldfastError) -> Response | None:
        """What another host says to what this one cannot answer; None: the error is the answer.

        Only requests for a key are passed on, and only by the host that got them first. One that
        knows the application names the owner by 421, which is then asked.

        Raises:
            Unavailable: the owner is away, does not answer in time, or has too many to answer
                already; names it.
            InvalidRequest: the key is too long for a URL.
        """
        host = self._whom(request, error)
        if host is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._get(host, request)
                if found.status_code == MISDIRECTED and (named := self._named(found)) is not None:
                    host = named
                    found = await self._get(host, request)
        except httpx.InvalidURL as failure:
            raise InvalidRequest(
                f"the key cannot be asked of host {host.id!r}: {failure}"
            ) from None
        except (httpx.TimeoutException, TimeoutError) as failure:
            raise Unavailable(
                f"host {host.id!r} at {host.http_url} has the key and did not answer in time: see "
                "'holdfast status'",
                owner=host.id,
                url=host.http_url,
                timeout_s=ANSWER_S,
            ) from failure
        except httpx.TransportError as failure:
            raise Unavailable(
                f"host {host.id!r} at {host.http_url} has the key and cannot be reached "
                f"({failure}): see 'holdfast status'; try again",
                owner=host.id,
                url=host.http_url,
            ) from failure
        if found.status_code == MISDIRECTED:
            return None
        if found.status_code == _UNAUTHORIZED:
            raise Unavailable(
                f"host {host.id!r} has the key and refuses this host's token: give all hosts the "
                "same HOLDFAST_TOKEN_FILE (or HOLDFAST_TOKEN)",
                owner=host.id,
                url=host.http_url,
            )
        headers = {name: v for name, v in found.headers.items() if name not in _OF_ONE_HOP}
        return Response(found.content, found.status_code, headers)

    def _whom(self, request: Request, error: HoldfastError) -> HostAddress | None:
        """Whom to ask; where this host does not know the application, its first task's owner."""
        if FORWARDED in request.headers or "key" not in request.path_params:
            return None
        if isinstance(error, NotOwner):
            return self._other(error.details.get("owner"))
        app = request.path_params["app"]
        if isinstance(error, NotFound | Unavailable) and app not in self._tasks.apps:
            return self._other(owner_of(app, 0, self._tasks.hosts).id)
        return None

    def _named(self, answer: httpx.Response) -> HostAddress | None:
        """The owner that another host names."""
        try:
            return self._other(orjson.loads(answer.content)["details"]["owner"])
        except (ValueError, KeyError, TypeError):  # not a state host
            return None

    def _other(self, host_id: object) -> HostAddress | None:
        """A host of the list, and not this one."""
        me = self._tasks.context.host_id
        return next((h for h in self._tasks.hosts if h.id == host_id != me), None)

    async def _get(self, host: HostAddress, request: Request) -> httpx.Response:
        # Encoded again, dots too: a key such as '..' would change the path.
        path = quote(request.scope["path"], safe="/").replace(".", "%2E")
        query = quote(request.scope["query_string"], safe="%&=+")
        with self._one_more(host):
            return await self._http.get(f"{host.http_url}{path}?{query}")

    @contextmanager
    def _one_more(self, host: HostAddress) -> Iterator[None]:
        if self._waiting[host.id] >= MOST_WAITING:
            raise Unavailable(
                f"host {host.id!r} at {host.http_url} has the key and {MOST_WAITING} requests that "
                "it has not answered: see 'holdfast status'; try again",
                owner=host.id,
                url=host.http_url,
            )
        self._waiting[host.id] += 1
        try:
            yield
        finally:
            self._waiting[host.id] -= 1
