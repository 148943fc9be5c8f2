"""Why a driver that has work commits nothing, as far as a look shows it."""

from __future__ import annotations

from state_lib.drivers.sight import Sight


def why_stalled(sight: Sight) -> tuple[str, str]:
    """What holds it up: ``hosts``, ``batch`` or ``driver``; and the same in words."""
    if sight.hosts:
        return "hosts", "; ".join(sight.hosts)
    if sight.batch is None:
        return "driver", "it has not begun a batch: look at the driver's log"
    since = max(0, (sight.at - sight.batch.since_ms) / 1000)
    return "batch", (
        f"batch {sight.batch.batch_number} of {sight.batch.rows:,} records runs since "
        f"{since:,.0f} s: look at Spark's page and at the driver's log"
    )
