"""Live stores, asked of the hosts that own them. No Kafka is needed, and nothing is claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import stamina

from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import (
    HoldfastError,
    InvalidRequest,
    NotFound,
    NotOwner,
    Quarantined,
    Unauthorized,
    Unavailable,
)
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import assign
from state_lib.spark.source.partitions import Cut, Keys, TaskPartition
from state_lib.specs import Topology
from state_lib.stores.columns import Columns

S = TypeVar("S")
T = TypeVar("T")
TRIES, MOST_WAIT_S, LOOK_S = 4, 10.0, 10.0
"""How often and how long is asked of who is away, and how long an answer may take."""
_AT_ONCE = 16
_STEPS: dict[type[HoldfastError], str] = {
    Unauthorized: "set HOLDFAST_TOKEN_FILE for the driver and for the executors",
    NotOwner: "give the list of hosts that the hosts were started with (HOLDFAST_HOSTS)",
    Quarantined: "`holdfast restore plan {app}` shows what would bring it back; until then "
    "option('snapshot', 'latest') reads the newest snapshots",
    Unavailable: "see `holdfast status`; option('snapshot', 'latest') reads the newest snapshots "
    "meanwhile",
}


@dataclass(frozen=True)
class LivePartition(TaskPartition):
    """A task of a host; ``address``: of it."""

    address: HostAddress

    @contextmanager
    def opened(self) -> Iterator[Cut]:
        """See `TaskPartition`; the host holds a snapshot of its store meanwhile.

        Raises:
            HoldfastError: in its class, with task, host and the next step.
        """
        token = Settings.load().read_token()
        with closing(FlightHostClient(self.address, token)) as client, _explained(self):
            marker, batches = _patiently(
                lambda: client.scan(self.app, self.task, self.store, self.keys)
            )
            parts = (Columns(batch.column(0), batch.column(1)) for batch in batches)
            yield Cut(marker, None, parts)

    def check(self, token: str | None) -> None:
        """Raise as `opened` if the task cannot be read."""
        with closing(FlightHostClient(self.address, token)) as client, _explained(self):
            _patiently(lambda: client.marker(self.app, self.task, LOOK_S))


def topology_of(app: str, hosts: Sequence[HostAddress], token: str | None) -> Topology:
    """An application as the newest claim that any host knows declares it.

    Raises:
        NotFound: no host knows it; lists what they know.
        Unavailable: a host that may know it is away, and no other knows it.
        Unauthorized: the token is not that of the hosts.
    """
    if not hosts:
        raise InvalidRequest("there are no hosts to ask: set HOLDFAST_HOSTS, or the option 'hosts'")
    return _patiently(lambda: _newest(app, hosts, token))


def live_partitions(
    topology: Topology, store: str, tasks: Mapping[int, Keys], hosts: Sequence[HostAddress]
) -> list[LivePartition]:
    """One of each task that is wanted, with the keys that are wanted of it, at its owner."""
    owners = assign(topology.app, topology.partitions, tuple(hosts))
    return [
        LivePartition(topology.app, task, store, keys, owners[task])
        for task, keys in sorted(tasks.items())
    ]


def check_all(partitions: Sequence[LivePartition], token: str | None) -> None:
    """Raise now, and not in an executor, if a task cannot be read."""
    if partitions:
        _each(lambda one: one.check(token), partitions)


def _newest(app: str, hosts: Sequence[HostAddress], token: str | None) -> Topology:
    def ask(address: HostAddress) -> Topology | HoldfastError:
        with closing(FlightHostClient(address, token)) as client:
            try:
                return client.topology(app, LOOK_S)
            except (NotFound, Unavailable) as error:
                return error
            except Unauthorized as error:
                raise _with_step(error, app, f"host {address}") from error

    answers = _each(ask, hosts)
    found = [one for one in answers if isinstance(one, Topology)]
    if found:
        return max(found, key=lambda topology: topology.extra.get("epoch", -1))
    away = [(at, e) for at, e in zip(hosts, answers, strict=True) if isinstance(e, Unavailable)]
    if away:
        at, error = away[0]
        raise _with_step(error, app, f"host {at}") from error
    known = sorted({one for e in answers if isinstance(e, NotFound) for one in e.details["known"]})
    raise NotFound(
        f"no host knows an application {app!r}; they know: {known}. Correct the option 'app', or "
        "start its driver, which makes it known",
        app=app,
        known=known,
    )


def _each(ask: Callable[[S], T], of: Sequence[S]) -> list[T]:
    with ThreadPoolExecutor(min(_AT_ONCE, len(of))) as pool:
        return list(pool.map(ask, of))


def _patiently(ask: Callable[[], T]) -> T:
    """What it answers; it is asked again while who should answer is away."""
    for attempt in stamina.retry_context(
        on=Unavailable, attempts=TRIES, timeout=MOST_WAIT_S, wait_initial=0.1, wait_max=2.0
    ):
        with attempt:
            return ask()
    raise AssertionError  # retry_context returns or raises


@contextmanager
def _explained(partition: LivePartition) -> Iterator[None]:
    try:
        yield
    except HoldfastError as error:
        at = f"task {partition.name} on host {partition.address}"
        raise _with_step(error, partition.app, at) from error


def _with_step(error: HoldfastError, app: str, where: str) -> HoldfastError:
    """The same with the place and the next step."""
    step = next((step for kind, step in _STEPS.items() if isinstance(error, kind)), None)
    said = f"{where}: {error.message}" + (f"; {step.format(app=app)}" if step else "")
    return type(error)(said, **error.details)
