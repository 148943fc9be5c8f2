"""The demo's tables, read from the live stores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from state_lib.keys import split_window_key

if TYPE_CHECKING:
    from rich.table import Table

    from state_lib.config import Settings

TOP = 5


def results(settings: Settings) -> Iterator[Table]:
    """The year per airport, its worst hours, and the busiest aircraft."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    hours = entries(settings, "flights", "departures_by_hour")
    years: dict[str, list[int]] = {}
    for key, row in hours:
        year = years.setdefault(key[:-12].decode(), [0, 0, 0, 0])
        year[0] += row["departures"]
        year[1] += row["cancellations"]
        year[2] += row["delay_sum"] or 0
        year[3] = max(year[3], row["delay_max"] or 0)
    table = Table(title="departures_by_hour, summed", title_justify="left", box=SIMPLE_HEAD)
    for name in ("origin", "departures", "cancellations", "mean delay", "longest delay"):
        table.add_column(name, justify="left" if name == "origin" else "right")
    for origin, (flown, cancelled, delay, longest) in sorted(years.items()):
        mean = f"{delay / max(flown, 1):.1f} min"
        table.add_row(origin, f"{flown:,}", f"{cancelled:,}", mean, f"{longest:,} min")
    yield table
    table = Table(title=f"its {TOP} worst hours", title_justify="left", box=SIMPLE_HEAD)
    for name in ("origin", "hour (UTC)", "departures", "cancellations", "summed delay"):
        table.add_column(name, justify="left" if name in ("origin", "hour (UTC)") else "right")
    for key, row in sorted(hours, key=lambda e: -(e[1]["delay_sum"] or 0))[:TOP]:
        inner, start, _ = split_window_key(key)
        table.add_row(
            inner.decode(),
            f"{datetime.fromtimestamp(start / 1000, UTC):%Y-%m-%d %H:%M}",
            str(row["departures"]),
            str(row["cancellations"]),
            f"{row['delay_sum']:,} min",
        )
    yield table
    table = Table(title=f"aircraft, the {TOP} busiest", title_justify="left", box=SIMPLE_HEAD)
    for name in ("tail number", "flights", "miles", "last seen at", "scheduled (UTC)"):
        table.add_column(name, justify="right" if name in ("flights", "miles") else "left")
    planes = entries(settings, "flights", "aircraft")
    for key, row in sorted(planes, key=lambda e: -e[1]["flights"])[:TOP]:
        seen = datetime.fromtimestamp((row["last_seen"] or 0) / 1000, UTC)
        place = str(row["last_seen_at"])
        table.add_row(
            key.decode(),
            f"{row['flights']:,}",
            f"{row['miles']:,}",
            place,
            f"{seen:%Y-%m-%d %H:%M}",
        )
    yield table


def entries(settings: Settings, app: str, store: str) -> list[tuple[bytes, dict[str, Any]]]:
    """Every live entry of a store of structs: key in the store's layout, fields."""
    from state_lib.changelog.claims import topology_of
    from state_lib.client.flight import FlightHostClient
    from state_lib.kafka import Kafka
    from state_lib.protocol.placement import owner_of
    from state_lib.serdes import serde_from

    topology = topology_of(Kafka.of(settings), app)
    spec = topology.store(store)
    serde = serde_from(spec.value_serde if spec is not None else "bytes")
    token = settings.read_token()
    out: list[tuple[bytes, dict[str, Any]]] = []
    for partition in range(topology.partitions):
        client = FlightHostClient(owner_of(app, partition, settings.host_addresses), token)
        _, chunks = client.scan(app, partition, store)
        for chunk in chunks:
            pairs = zip(chunk.column(0).to_pylist(), chunk.column(1).to_pylist(), strict=True)
            out += [(key, serde.deserialize(value[8:])) for key, value in pairs]
        client.close()
    return out
