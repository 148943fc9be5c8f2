"""What every request passes before any route sees it: the token, and well-formed text."""

from __future__ import annotations

import hmac
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from state_lib.errors import InvalidRequest, Unauthorized
from state_lib.host.http.failures import error_answer

OPEN = frozenset({"/livez", "/readyz", "/openapi.json"})
"""Paths that need no token: they tell nothing of any state. All others do, known or not."""
TRUSTED = "holdfast.trusted"
"""In a request's scope: whether it came with the token, or none is configured."""


class BearerToken:
    """Refuses requests without the token; with None every request passes.

    Args:
        app: what lies behind.
        token: the configured one.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        trusted = scope["type"] != "http" or self._allowed(scope)
        scope[TRUSTED] = trusted
        if trusted or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        refusal = Unauthorized(
            "a bearer token is required: send 'Authorization: Bearer …' with the token of "
            "HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE"
        )
        await error_answer(refusal)(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        if self._expected is None:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        return hmac.compare_digest(token, self._expected) and scheme.lower() == b"bearer"


class WellFormed:
    """Refuses paths and queries that are not UTF-8: they would be read as other keys."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] == "http":
            try:
                for raw in (scope["raw_path"], scope["query_string"]):
                    unquote_to_bytes(raw).decode()
            except UnicodeDecodeError as error:
                refusal = InvalidRequest(
                    f"path and query must be percent-encoded UTF-8: {error}; keys of a store with "
                    "serde 'bytes' are written in hexadecimal"
                )
                await error_answer(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)
