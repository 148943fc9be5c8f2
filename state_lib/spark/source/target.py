"""From options to what they name: a store, its tasks, and who can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from state_lib.addresses import HostAddress
from state_lib.config import Settings
from state_lib.errors import NotFound
from state_lib.host.json_forms import parse_key
from state_lib.keys import partition_for
from state_lib.serdes import serde_from
from state_lib.snapshots.manifest import Manifest
from state_lib.spark.source.live import check_all, live_partitions, topology_of
from state_lib.spark.source.options import ReadOptions
from state_lib.spark.source.stored import choose, spec_of, stored_partitions
from state_lib.spark.source.table import Table
from state_lib.specs import StoreSpec, Topology


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
    keys: frozenset[bytes] | None
    _of: _Live | _Stored

    def table(self) -> Table:
        """Its columns. Raises NotFound for one that it has not."""
        return Table(self._of.app, self.spec, self.columns)

    def partitions(self, keys: frozenset[bytes] | None) -> Sequence[InputPartition]:
        """One for each task that may have these keys.

        Raises:
            Unavailable: a task cannot be read now; says which and what to do.
        """
        tasks = range(self._of.partitions)
        if keys is not None:
            tasks = sorted({partition_for(key, self._of.partitions) for key in keys})
        wanted = None if keys is None else sorted(keys)
        return self._of.parts(self.spec.name, tasks, wanted)


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

    def parts(
        self, store: str, tasks: Sequence[int], keys: Sequence[bytes] | None
    ) -> Sequence[InputPartition]:
        found = live_partitions(self.topology, store, tasks, keys, self.hosts)
        check_all(found, Settings.load().read_token())
        return found


@dataclass(frozen=True)
class _Stored:
    manifests: tuple[Manifest, ...]

    @property
    def app(self) -> str:
        return self.manifests[0].app

    @property
    def partitions(self) -> int:
        return len(self.manifests)

    def parts(
        self, store: str, tasks: Sequence[int], keys: Sequence[bytes] | None
    ) -> Sequence[InputPartition]:
        return stored_partitions(self.manifests, store, tasks, keys)


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
        spec, of = _declared(topology, options.store), _Live(topology, hosts)
    else:
        url = options.snapshots_url
        chosen = choose(_absolute(settings, url), options.app, options.snapshot)
        spec, of = spec_of(chosen, options.store), _Stored(tuple(chosen))
    return Target(spec, options.columns, _keys(spec, options.key), of)


def _declared(topology: Topology, store: str) -> StoreSpec:
    spec = topology.store(store)
    if spec is None:
        known = [one.name for one in topology.stores]
        raise NotFound(
            f"application {topology.app!r} has no store {store!r}; its stores: {known}",
            app=topology.app,
            store=store,
            known=known,
        )
    return spec


def _keys(spec: StoreSpec, text: str | None) -> frozenset[bytes] | None:
    if text is None:
        return None
    return frozenset([serde_from(spec.key_serde).serialize(parse_key(spec.key_serde, text))])


def _absolute(settings: Settings, url: str | None) -> str:
    """With a protocol, as `Settings` has it."""
    return settings.snapshots_url if url is None else Settings.load(snapshots_url=url).snapshots_url
