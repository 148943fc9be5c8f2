"""Times in requests and answers: milliseconds since 1970, or ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from state_lib.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_INTEGER = re.compile(r"-?[0-9]{1,19}")
MIN_MS, MAX_MS = -(2**63), 2**63 - 1


def parse_time(name: str, text: str | None, default: int) -> int:
    """Milliseconds of a parameter; a time without a zone is UTC.

    Args:
        name: of the parameter, for the message.
        text: as given; None means ``default``.
        default: in ms.

    Raises:
        InvalidRequest: neither a number of 64 bits nor an ISO 8601 time.
    """
    if text is None:
        return default
    try:
        if _INTEGER.fullmatch(text):
            number = int(text)
            if MIN_MS <= number <= MAX_MS:
                return number
        else:
            time = datetime.fromisoformat(text)
            return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MS
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(
        f"{name}={text!r} is not a time: write milliseconds since 1970, or ISO 8601 such as "
        "2013-01-01T05:00:00Z (a '+' in a URL is %2B)",
        parameter=name,
        seen=text,
    )


def iso(ms: int) -> str | None:
    """ISO 8601 in UTC with milliseconds; None before year 1 and after 9999."""
    try:
        return (_EPOCH + ms * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None
