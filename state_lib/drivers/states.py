"""What an application's stream does, in a word, as far as one look shows it."""

from __future__ import annotations

from dataclasses import replace

from state_lib.drivers.sight import Ended, Sight


def last_end(sight: Sight) -> Ended | None:
    """How the claim's driver ended, if none lives; others may have been refused since.

    A driver that had failed counts as stopped once its stream was asked to stop.
    """
    if sight.drivers:
        return None
    facts, last = sight.facts, sight.ended[-1] if sight.ended else None
    if facts is None:
        return last
    end = sight.end_of(facts.id)
    stop = sight.stream_stopped_since(sight.epoch)
    if stop is not None and end is not None and end.how == "failed":
        # Maybe between two starts by its supervisor, which heeds the request: nobody starts it.
        why = f"{stop.why}; its driver had failed: {end.why}"
        return replace(end, how="stopped", why=why, retry=False)
    over = sight.stop is not None or (end is not None and end.how != "failed")
    if not over and last is not None and last.how == "failed":
        return last  # maybe that of a successor which ended before its claim
    if over or end is not None:
        return end
    why = f"the driver on {facts.host}, process {facts.pid}, is gone without a word"
    return Ended(facts.id, "failed", why, restarts=facts.restarts)


def state_of(sight: Sight) -> str:
    """In a word: what the application's stream does."""
    if sight.notice is not None:
        return sight.notice
    if not sight.drivers:
        end = last_end(sight)
        return "failed" if end is not None and end.how == "failed" else "stopped"
    if sight.driver not in sight.drivers:
        return "starting"
    return "stopping" if sight.stop is not None else "running"
