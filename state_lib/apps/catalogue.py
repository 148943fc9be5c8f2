"""Which applications there are: by their topology topics, and by what hosts remember."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from state_lib.apps.hosts import Held
from state_lib.changelog.claims import Claim, candidates, newest_claim
from state_lib.changelog.topics import commits_topic
from state_lib.drivers.members import living_drivers
from state_lib.errors import ConfigurationError, KafkaRefused, NotFound
from state_lib.kafka import Kafka
from state_lib.names import check_name
from state_lib.task.claiming import standing

State = Literal[
    "running",
    "stopped",
    "reset",
    "reset begun",
    "delete begun",
    "left on hosts",
    "topology lost",
    "not readable",
]
LEFT: State = "left on hosts"


@dataclass(frozen=True)
class Known:
    """One application.

    Attributes:
        app: its id.
        claim: the newest; None if it may not be read, or if the topology topic is gone.
        lost: whether tasks stand at a claim that is not there any more.
        drivers: ids of those that live.
        hosts: that hold tasks of it.
        refused: why Kafka does not let us read its topology or its group: it may be another team's.
    """

    app: str
    claim: Claim | None
    drivers: tuple[str, ...]
    hosts: tuple[str, ...]
    refused: str | None = None
    lost: bool = False

    @property
    def state(self) -> State:
        """In one word or two."""
        if self.refused is not None:
            return "not readable"
        if self.claim is None:
            return "topology lost" if self.lost else LEFT
        notice = self.claim.notice
        if notice is not None:
            begun: State = "reset begun" if notice.kind == "reset" else "delete begun"
            return "reset" if notice.done else begun
        return "running" if self.drivers else "stopped"


def catalogue(kafka: Kafka, held: Sequence[Held] = ()) -> list[Known]:
    """Every application, by name; one that may not be read is there with the refusal.

    Raises:
        Unavailable: Kafka cannot be asked.
    """
    names = candidates(kafka)
    with ThreadPoolExecutor(8) as pool:
        claims = dict(zip(names, pool.map(lambda name: _claim(kafka, name), names), strict=True))
        known = {app for app, claim in claims.items() if claim is not None}
        left = [app for app in candidates(kafka, commits_topic(""), None) if app not in known]
        lost = pool.map(lambda app: _is_left(kafka, app), left)
        known |= {app for app, is_lost in zip(left, lost, strict=True) if is_lost}
        known |= {app for one in held for app in one.apps}
        return list(pool.map(lambda app: _listed(kafka, app, claims.get(app), held), sorted(known)))


def find(kafka: Kafka, app: str, held: Sequence[Held] = ()) -> Known:
    """One application.

    Raises:
        InvalidName: not a possible name.
        NotFound: there is no such application; lists those that there are.
        Unavailable: Kafka cannot be asked.
    """
    found = _known(kafka, check_name("application", app), newest_claim(kafka, app), held)
    if found.claim is None and not found.hosts and not found.lost:
        others = [known.app for known in catalogue(kafka, held)]
        raise NotFound(
            f"there is no application {app!r} on these brokers and hosts; there are: "
            f"{', '.join(others) or 'none'}",
            app=app,
            known=others,
        )
    return found


def _known(kafka: Kafka, app: str, claim: Claim | None, held: Sequence[Held]) -> Known:
    hosts = tuple(one.host for one in held if app in one.apps)
    if claim is not None:
        return Known(app, claim, living_drivers(kafka, app), hosts)
    if not _is_lost(kafka, app):
        return Known(app, None, (), hosts)
    return Known(app, None, living_drivers(kafka, app), hosts, lost=True)


def _listed(
    kafka: Kafka, app: str, claim: Claim | KafkaRefused | None, held: Sequence[Held]
) -> Known:
    hosts = tuple(one.host for one in held if app in one.apps)
    if isinstance(claim, KafkaRefused):
        return Known(app, None, (), hosts, refused=claim.message)
    try:
        return _known(kafka, app, claim, held)
    except KafkaRefused as error:
        return Known(app, claim, (), hosts, refused=error.message)


def _is_lost(kafka: Kafka, app: str) -> bool:
    """Whether tasks of an application without a claim have been claimed."""
    return any(marker.epoch >= 0 for marker in standing(kafka, app))


def _is_left(kafka: Kafka, app: str) -> bool:
    """As `_is_lost`; anybody may name a topic as our markers' are named."""
    try:
        return _is_lost(kafka, check_name("application", app))
    except (ValueError, TypeError, KeyError, ConfigurationError):
        return False


def _claim(kafka: Kafka, app: str) -> Claim | KafkaRefused | None:
    """The newest claim, if the topic is a topology topic at all: anybody may name one so.

    Raises:
        Unavailable: Kafka cannot be asked.
    """
    try:
        claim = newest_claim(kafka, check_name("application", app))
    except KafkaRefused as error:  # another team's: its topics are visible but must not be read
        return error
    except (ValueError, TypeError, KeyError, ConfigurationError):
        return None
    return claim if claim is not None and claim.topology.app == app else None
