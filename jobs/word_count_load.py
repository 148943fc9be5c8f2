"""Publishes a small text to the topic ``lines``, for the first steps of the tutorial.

A poem of a dozen lines, sung again and again: enough words to count, and every count is easy to
check by hand. Killed and started again, it goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from state_lib.config import Settings
from state_lib.loading import Loaded, Record, Report, publish

TOPIC = "lines"
LINES = 2400
START_MS = 1_735_689_600_000  # 2025-01-01 00:00 UTC; one line a second from then on
POEM = (
    "A holdfast is no root at all: it does not drink, it does not feed.",
    "It holds the rock, and rock holds it, and both of them hold fast the weed.",
    "The tide comes in, the tide goes out, and every wave will have its say;",
    "what was not held is gone by dawn, what was held fast is there by day.",
    "The sand remembers nothing long, the gull forgets the words it cried,",
    "the kelp keeps count of all of it: one ring, one summer, and one tide.",
    "So let the stream run where it will, and let the storm take what it must:",
    "what has been written to the log is held by more than hope and trust.",
    "And if the stone should break at last, and if the blade be torn away,",
    "a spore has drifted down the coast and holds another rock today.",
    "One wave, one count; the same wave twice would be a wave that never was.",
    "Count once, hold fast, and when they ask: the sea has reasons, and it does.",
)


def load(
    settings: Settings,
    *,
    limit: int | None = None,
    rate: float | None = None,
    report: Report | None = None,
) -> Loaded:
    """Publish the lines, or the first ``limit``; see `state_lib.loading.publish`."""
    return publish(settings, TOPIC, records(), total=LINES, limit=limit, rate=rate, report=report)


def records() -> Iterator[Record]:
    """One record per line, without keys."""
    for i in range(LINES):
        yield Record(None, POEM[i % len(POEM)].encode(), START_MS + i * 1000)


def main() -> None:
    """Load with a progress bar."""
    from state_lib.cli.load import run  # noqa: PLC0415 - the bar is for people

    run(load, "lines")


if __name__ == "__main__":
    main()
