"""Options of ``spark.read.format("holdfast")``. Spark gives their names in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from state_lib.errors import InvalidRequest
from state_lib.names import check_name
from state_lib.protocol.addresses import HostAddress, parse_hosts

OPTIONS = {
    "app": "id of the application",
    "store": "name of the store",
    "columns": "names, separated by commas; all of them by default",
    "key": "one key, as in a query: text, a number, hexadecimal for bytes, JSON for others",
    "keys": "several, as a JSON array",
    "snapshot": "id of a savepoint or snapshot, or 'latest', instead of the live store",
    "hosts": "state hosts, as in HOLDFAST_HOSTS, which is the default",
    "snapshots_url": "where snapshots are, as in HOLDFAST_SNAPSHOTS_URL, which is the default",
}


@dataclass(frozen=True)
class ReadOptions:
    """What was asked for; None and () where nothing was.

    Attributes:
        app, store: names, checked.
        columns: to read, in order.
        key, keys: as text; at most one of the two.
        snapshot: an id, or ``latest``; None for the live store.
        hosts: where to ask.
        snapshots_url: where snapshots are.
    """

    app: str
    store: str
    columns: tuple[str, ...] | None = None
    key: str | None = None
    keys: str | None = None
    snapshot: str | None = None
    hosts: tuple[HostAddress, ...] | None = None
    snapshots_url: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """From the options of a reader.

        Raises:
            InvalidRequest: one is unknown or missing, or a secret; no value is shown then.
            InvalidName, ConfigurationError: a name, or a list of hosts, that cannot be one.
        """
        options = {name.lower(): value for name, value in given.items()}
        _check(options)
        hosts = options.get("hosts")
        columns = options.get("columns")
        return cls(
            app=check_name("application", options["app"]),
            store=check_name("store", options["store"]),
            columns=None if columns is None else _names(columns),
            key=options.get("key"),
            keys=options.get("keys"),
            snapshot=options.get("snapshot"),
            hosts=None if hosts is None else parse_hosts(hosts),
            snapshots_url=options.get("snapshots_url"),
        )


def _check(options: Mapping[str, str]) -> None:
    for name in options:
        if "token" in name:
            raise InvalidRequest(
                f"{name!r} is no option: options stand in plans and event logs. Set "
                "HOLDFAST_TOKEN_FILE in the environment of the driver and of the executors",
                option=name,
            )
    if unknown := sorted(options.keys() - OPTIONS):
        raise InvalidRequest(
            f"unknown options {unknown}; known: {sorted(OPTIONS)}", options=unknown
        )
    for name in ("app", "store"):
        if not options.get(name):
            raise InvalidRequest(
                f"option {name!r} is missing, {OPTIONS[name]}: `holdfast app list` shows what "
                "there is",
                option=name,
            )
    if "key" in options and "keys" in options:
        raise InvalidRequest("the options 'key' and 'keys' exclude each other: take one of them")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len({name.lower() for name in names}) < len(names):
        raise InvalidRequest(
            f"columns={text!r}: name each column once, separated by commas", columns=text
        )
    return names
