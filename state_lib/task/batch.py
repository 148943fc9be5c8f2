"""One task's share of one batch, as the executor sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from state_lib.changelog.topics import changelog_topic
from state_lib.changelog.writer import Records, record_times
from state_lib.errors import InvalidRequest
from state_lib.keys import stamped
from state_lib.protocol.marker import CommitHeader
from state_lib.specs import Topology
from state_lib.stores.task_stores import StoreChanges


@dataclass(frozen=True)
class Puts:
    """Changes of one store as parallel columns, keys in the store's layout; None deletes.

    ``timestamps`` (ms): event time of each change, which timestamped stores keep.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]


@dataclass(frozen=True)
class Batch:
    """A commit: its header, changes per store, and records for output topics."""

    header: CommitHeader
    puts: Mapping[str, Puts] = field(default_factory=dict)
    outputs: Sequence[Records] = ()

    def check(self, topology: Topology, dead_letters: str) -> None:
        """Refuse stores and topics that are not in the topology, and malformed columns.

        Raises:
            InvalidRequest: names the fault.
        """
        unknown = [s for s in self.puts if topology.store(s) is None]
        allowed = {o.topic for o in topology.outputs} | {dead_letters}
        unknown += [r.topic for r in self.outputs if r.topic not in allowed]
        if unknown:
            raise InvalidRequest(
                f"{unknown} are neither stores nor outputs of application {topology.app!r}: the "
                "host's topology is older than the job's; claim the tasks again",
                unknown=unknown,
            )
        for store, p in self.puts.items():
            _check_columns(f"store {store!r}", p.keys, p.values, p.timestamps)
            if None in p.keys:
                raise InvalidRequest(f"store {store!r} is given a null key", store=store)
        for r in self.outputs:
            _check_columns(f"output {r.topic!r}", r.keys, r.values, r.timestamps)

    def records(self, app: str) -> list[Records]:
        """Records for Kafka, changelogs first."""
        changelogs = [
            Records(changelog_topic(app, store), p.keys, p.values, p.timestamps)
            for store, p in self.puts.items()
            if p.keys
        ]
        return [*changelogs, *(o for o in self.outputs if o.keys)]

    def changes(self, topology: Topology) -> StoreChanges:
        """Changes for the stores; values of timestamped ones begin with the time."""
        out = {}
        for name, puts in self.puts.items():
            spec = topology.store(name)
            if not puts.keys or spec is None:
                continue
            values = puts.values
            if spec.is_timestamped:
                values = stamped(record_times(puts.timestamps), puts.values)
            out[name] = (puts.keys, values)
        return out

    def size_bytes(self) -> int:
        """Bytes of keys and values of all changes."""
        return sum(
            sum(map(len, p.keys)) + sum(len(v) for v in p.values if v is not None)
            for p in self.puts.values()
        )


def _check_columns(
    what: str,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int] | None,
) -> None:
    if len(values) != len(keys) or (timestamps is not None and len(timestamps) != len(keys)):
        times = "no" if timestamps is None else len(timestamps)
        raise InvalidRequest(
            f"{what} is given {len(keys)} keys, {len(values)} values, {times} times"
        )
    if timestamps and (None in timestamps or min(timestamps) < 0):
        raise InvalidRequest(f"{what} is given records without a time, or with one before 1970")
