"""States of processors as a test driver's stores hold them, as Spark's classes would show them."""

from __future__ import annotations

from typing import Any

from state_lib import TopologyTestDriver

Values = dict[Any, tuple[Any, ...]]


def values(driver: TopologyTestDriver, store: str) -> Values:
    """A value state by grouping key."""
    found = driver.getKeyValueStore(store).all()
    return {key: tuple(value.values()) for key, value in found.items()}


def lists(driver: TopologyTestDriver, store: str) -> dict[str, list[tuple[Any, ...]]]:
    """A list state by grouping key, which is text; elements in their order."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for entry, value in sorted(driver.getKeyValueStore(store).all().items()):
        found.setdefault(_split(entry)[0], []).append(tuple(value.values()))
    return found


def maps(driver: TopologyTestDriver, store: str) -> dict[str, Values]:
    """A map state by grouping key, which is text; its own keys are one number."""
    found: dict[str, Values] = {}
    for entry, value in driver.getKeyValueStore(store).all().items():
        key, inner = _split(entry)
        assert inner[0] == 0, "no null"
        number = int.from_bytes(inner[1:], "big", signed=True)
        found.setdefault(key, {})[(number,)] = tuple(value.values())
    return found


def timers(driver: TopologyTestDriver, store: str) -> list[tuple[int, str]]:
    """Timers that have not run, by expiry and key, which is text."""
    entries = sorted(driver.getKeyValueStore(store).all())
    by_time = [(_time(raw[1:9]), raw[9:].decode()) for raw in entries if raw[:1] == b"\x00"]
    by_key = []
    for raw in entries:
        if raw[:1] == b"\x01":
            key, time = _split(raw[1:])
            by_key.append((_time(time), key))
    assert sorted(by_key) == by_time, "each is there twice"
    return by_time


def _split(entry: bytes) -> tuple[str, bytes]:
    end = 4 + int.from_bytes(entry[:4], "big")
    return entry[4:end].decode(), entry[end:]


def _time(raw: bytes) -> int:
    return int.from_bytes(raw, "big") - 2**63
