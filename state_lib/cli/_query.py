"""What ``holdfast query`` and ``holdfast stores`` ask and print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from state_lib.cli._tables import cell, table
from state_lib.client.query import QueryClient
from state_lib.client.rows import Rows
from state_lib.config import Settings
from state_lib.errors import HoldfastError, InvalidRequest, NotFound
from state_lib.logs import configure_logging
from state_lib.protocol.json_forms import parse_key, parse_prefix
from state_lib.times import iso

Json = dict[str, Any]


def connect(rows: int = 1000) -> QueryClient:
    """A client for the configured hosts that asks for so many rows at once.

    Its retries are not worth a line: the error tells in the end.
    """
    settings = Settings.load()
    configure_logging("ERROR")
    return QueryClient(
        settings.host_addresses, settings.read_token(), page_rows=max(1, min(rows, 1000))
    )


def find(
    client: QueryClient,
    app: str,
    store: str,
    key: str | None,
    span: tuple[str | None, str | None],
    prefix: str | None,
) -> Rows:
    """Ask what the options say.

    Raises:
        NotFound: the key is not there.
        InvalidRequest: options that exclude each other, or text that is no key.
    """
    spec = client.store(app, store)
    serde, windows = spec["key_serde"], spec["window_size_ms"] > 0
    if key is not None and (prefix is not None or (not windows and span != (None, None))):
        raise InvalidRequest("give a key, or a range of keys (--from, --to, --prefix), not both")
    typed = None if key is None else parse_key(serde, key)
    start = None if prefix is None else parse_prefix(serde, prefix)
    if windows:
        return _some(client.windows(app, store, typed, *span, prefix=start), app, store, key)
    if key is None:
        first, last = (None if text is None else parse_key(serde, text) for text in span)
        return client.range(app, store, first, last, prefix=start)
    entry = client.get(app, store, typed)
    rows = Rows()
    if entry is not None:
        rows.position = entry["position"]
        rows.take(iter([{n: entry[n] for n in ("key", "value", "timestamp") if n in entry}]))
    return _some(rows, app, store, key)


def _some(rows: Rows, app: str, store: str, key: str | None) -> Rows:
    """The rows; if none is there for a key that was asked for, `NotFound`."""
    if key is None:
        return rows
    first = next(rows, None)
    if first is None:
        raise NotFound(f"store {store!r} of {app!r} has nothing for key {key!r}", key=key)
    again = Rows()
    again.position = rows.position

    def all_rows() -> Iterator[Json]:
        yield first
        yield from rows

    again.take(all_rows())
    return again


def show(rows: Sequence[Json], position: Json | None, *, as_json: bool) -> None:
    """Print entries, then the position if there is one to print."""
    if as_json:
        for row in rows:
            typer.echo(orjson.dumps(row))
        if position is not None:
            typer.echo(orjson.dumps({"position": position}), err=True)
        return
    console = Console()
    console.print(table([_flat(row) for row in rows]) if rows else "no entries")
    if position is not None:
        console.print(position_table(position))


def store_tables(found: Json) -> list[Table]:
    """One table of stores, one of tasks."""
    stores = [
        {
            "store": s["name"],
            "kind": s["kind"],
            "backend": s["backend"],
            "key": _brief(s["key_serde"]),
            "value": _brief(s["value_serde"]),
            "entries (about)": s["approximate_entries"],
            "bytes": s["size_bytes"],
        }
        for s in found["stores"]
    ]
    tasks = [
        {
            "task": t["task"],
            "host": t["host"],
            "state": t["reason"] or t["state"],
            **(_position(t["position"]) if t["position"] else {}),
            "dropped": sum(t["dropped"].values()),
        }
        for t in found["tasks"]
    ]
    return [table(stores), table(tasks)]


def position_table(position: Json) -> Table:
    """By task: the commit that was read. Raises HoldfastError if a host is too old to say it."""
    return table([{"task": task, **_position(at)} for task, at in sorted(position.items())])


def _position(at: Mapping[str, Any]) -> Json:
    if "batch_number" not in at:
        raise HoldfastError(
            "a host that answered is older than this 'holdfast': upgrade it and ask again, or see "
            "with --json what it says"
        )
    offsets = [f"{t}[{p}]={o}" for t, parts in at["positions"].items() for p, o in parts.items()]
    stream_time = "" if at["stream_time_ms"] < 0 else iso(at["stream_time_ms"])
    return {
        "epoch": at["epoch"],
        "batch": at["batch_number"],
        "stream time": stream_time,
        "positions": " ".join(offsets),
    }


def _flat(row: Json) -> Json:
    """A row for a table: times readable, a struct's fields as columns."""
    key = row["key"]
    out = dict(key) if isinstance(key, dict) else {"key": key}
    for name in ("window_start", "window_end"):
        if name in row:
            out[name] = row[f"{name}_time"] or row[name]
    value = row["value"]
    fields = value if isinstance(value, dict) else {"value": value}
    out |= {f"value.{name}" if name in out else name: field for name, field in fields.items()}
    if row.get("timestamp") is not None:
        out["(time of last change)"] = iso(row["timestamp"])
    return out


def _brief(serde: Any) -> str:
    fields = serde.get("struct") if isinstance(serde, dict) else None
    return ", ".join(n for n, _ in fields if n[:1] != "_") if fields else cell(serde)
