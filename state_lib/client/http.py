"""Requests to one host: errors become Holdfast's own, and what may pass is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import stamina

from state_lib.errors import HoldfastError, Unauthorized, Unavailable, from_wire
from state_lib.protocol.addresses import HostAddress

TRIES = 4
MOST_WAIT_S = 10.0
CONNECT_S = 5.0
_FAILED, _UNAUTHORIZED = 400, 401


def encoded(name: str) -> str:
    """A name or key as one segment of a URL's path; dots too, or ``..`` would climb."""
    return quote(name, safe="").replace(".", "%2E")


class HostHttp:
    """A connection pool to one host; safe to share between threads."""

    def __init__(self, address: HostAddress, token: str | None, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        headers = {} if token is None else {b"Authorization": f"Bearer {token}".encode()}
        self._client = httpx.Client(
            base_url=address.http_url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)),
            trust_env=False,  # an outgoing proxy does not reach these hosts
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(
        self, path: str, query: Mapping[str, str] | None = None, *, patient: bool = True
    ) -> dict[str, Any]:
        """The JSON at a path; ``patient``: tried up to `TRIES` times, with growing pauses.

        Raises:
            Unavailable: the host cannot be reached or its task is not open; names host and URL.
            HoldfastError: what the host answered, in its own class.
        """
        for attempt in stamina.retry_context(
            on=_passes,
            attempts=TRIES if patient else 1,
            timeout=MOST_WAIT_S,
            wait_initial=0.1,
            wait_max=2.0,
        ):
            with attempt:
                return self._get(path, query)
        raise AssertionError  # retry_context returns or raises

    def _get(self, path: str, query: Mapping[str, str] | None) -> dict[str, Any]:
        host, url = self.address.id, f"{self.address.http_url}{path}"
        try:
            response = self._client.get(path, params=query)
        except httpx.ReadTimeout as error:
            raise Unavailable(
                f"host {host!r} did not answer {url} within {self._timeout_s} s: ask for less, or "
                "raise the timeout",
                host=host,
                url=url,
                timeout_s=self._timeout_s,
            ) from error
        except httpx.TransportError as error:
            raise Unavailable(
                f"host {host!r} at {self.address.http_url} cannot be reached ({error}): see "
                "'holdfast status', or correct HOLDFAST_HOSTS",
                host=host,
                url=url,
            ) from error
        if response.status_code < _FAILED:
            body: dict[str, Any] = orjson.loads(response.content)
            return body
        raise _failure(response, host, url)


def _failure(response: httpx.Response, host: str, url: str) -> HoldfastError:
    """The error that the host sent, or a word about whoever answered in its place."""
    try:
        sent = orjson.loads(response.content)
    except ValueError:
        sent = None
    if not isinstance(sent, dict) or not {"code", "message", "details"} <= sent.keys():
        return HoldfastError(
            f"{url} answered {response.status_code}, and not as a state host does: is "
            "HOLDFAST_HOSTS right?",
            host=host,
            url=url,
        )
    error = from_wire(sent)
    if isinstance(error, Unavailable | Unauthorized):
        error.details |= {"host": host, "url": url}
        return type(error)(f"host {host!r}: {error.message}", **error.details)
    return error


def _passes(error: Exception) -> bool:
    """Whether asking again may help; a request that took too long once will again."""
    return isinstance(error, Unavailable) and "timeout_s" not in error.details
