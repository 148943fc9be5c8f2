"""From options to what they name: a store, its tasks, and who can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
from pyspark.sql.datasource import InputPartition

from state_lib.config import Settings
from state_lib.errors import InvalidRequest
from state_lib.keys import partition_for
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.json_forms import key_from_json, parse_key
from state_lib.serdes import serde_from
from state_lib.spark.source.live import check_all, live_partitions, topology_of
from state_lib.spark.source.options import ReadOptions
from state_lib.spark.source.partitions import Keys
from state_lib.spark.source.stored import StoredPartition, choose, spec_of
from state_lib.spark.source.table import Table
from state_lib.specs import StoreSpec, Topology

MOST_KEYS, MOST_WINDOWED_KEYS = 10_000, 100
"""More are not asked for one by one; each one of a window store costs a scan of every segment."""
_SHOWN = 80


@dataclass(frozen=True)
class Target:
    """A store that is to be read.

    Attributes:
        spec: what it is.
        columns: to read; None for all.
        keys: serialized ones to read, of windows the inner ones; None for all.
    """

    spec: StoreSpec
    columns: tuple[str, ...] | None
    keys: Keys
    _of: _Live | _Stored

    def table(self) -> Table:
        """Its columns. Raises NotFound for one that it has not."""
        return Table(self._of.app, self.spec, self.columns)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task that may have a row, in a list as Spark wants it.

        Raises:
            Unavailable: a task cannot be read now; says which and what to do.
        """
        if self.keys is None:
            return self._of.parts(self.spec.name, dict.fromkeys(range(self._of.partitions)))
        owned: dict[int, Keys] = {}
        for key in self.keys:
            task = partition_for(key, self._of.partitions)
            owned[task] = (*(owned.get(task) or ()), key)
        return self._of.parts(self.spec.name, owned)


@dataclass(frozen=True)
class _Live:
    topology: Topology
    hosts: tuple[HostAddress, ...]

    @property
    def app(self) -> str:
        return self.topology.app

    @property
    def partitions(self) -> int:
        return self.topology.partitions

    def parts(self, store: str, tasks: Mapping[int, Keys]) -> Sequence[InputPartition]:
        found = live_partitions(self.topology, store, tasks, self.hosts)
        check_all(found, Settings.load().read_token())
        return found


@dataclass(frozen=True)
class _Stored:
    app: str
    url: str
    snapshots: tuple[str, ...]

    @property
    def partitions(self) -> int:
        return len(self.snapshots)

    def parts(self, store: str, tasks: Mapping[int, Keys]) -> Sequence[InputPartition]:
        return [
            StoredPartition(self.app, task, store, keys, self.url, self.snapshots[task])
            for task, keys in sorted(tasks.items())
        ]


def find_target(given: Mapping[str, str]) -> Target:
    """Look up what options name.

    Raises:
        InvalidRequest, InvalidName, ConfigurationError: an option is wrong.
        NotFound: no such application, store, column or snapshot; lists those that there are.
        Unauthorized, Unavailable, StorageUnavailable, SnapshotInvalid: nobody can be asked.
    """
    options, settings = ReadOptions.parse(given), Settings.load()
    of: _Live | _Stored
    if options.snapshot is None:
        hosts = settings.host_addresses if options.hosts is None else options.hosts
        topology = topology_of(options.app, hosts, settings.read_token())
        spec, of = topology.required(options.store), _Live(topology, hosts)
    else:
        url = settings.snapshots_url
        if options.snapshots_url is not None:  # with a protocol, as in settings
            url = Settings.load(snapshots_url=options.snapshots_url).snapshots_url
        chosen = choose(url, options.app, options.snapshot)
        spec = spec_of(chosen, options.store)
        of = _Stored(options.app, url, tuple(manifest.id for manifest in chosen))
    return Target(spec, options.columns, keys_of(spec, options), of)


def keys_of(spec: StoreSpec, options: ReadOptions) -> Keys:
    """The serialized keys that options name, distinct and sorted; None where they name none.

    Raises:
        InvalidRequest, SerdeError: not keys of this store, or too many.
    """
    serde, description = serde_from(spec.key_serde), spec.key_serde
    if options.key is not None:
        return (serde.serialize(parse_key(description, options.key)),)
    if options.keys is None:
        return None
    try:
        shown = orjson.loads(options.keys)
        found = {serde.serialize(key_from_json(description, one)) for one in _list(shown)}
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"keys={options.keys[:_SHOWN]!r} is no JSON array of keys of serde {description!r} "
            f"({error})",
            serde=description,
        ) from error
    most = MOST_WINDOWED_KEYS if spec.is_window else MOST_KEYS
    if len(found) > most:
        raise InvalidRequest(
            f"{len(found)} keys of a {spec.kind} store are more than are asked for one by one "
            f"({most}): read the store and join it with them",
            store=spec.name,
        )
    return tuple(sorted(found))


def _list(shown: object) -> list[object]:
    if not isinstance(shown, list):
        raise TypeError(f"a {type(shown).__name__}")
    return shown
