"""Looks for one condition, and asks nobody more than it needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from state_lib.changelog.topics import topology_topic
from state_lib.checks.condition import Condition, Name
from state_lib.checks.conditions import (
    changelog_unsafe,
    compaction_stuck,
    disk_filling,
    host_down,
    snapshot_stale,
    store_lost,
    stores_seen,
    task_without_owner,
)
from state_lib.checks.facts import Facts, HostSeen, Wanted
from state_lib.checks.stalling import Stalling
from state_lib.drivers.look import Looker
from state_lib.errors import ConfigurationError, HoldfastError, LogLost, NotFound, Unauthorized
from state_lib.gathering.application import SNAPSHOT_AGE_MS, declared, gather, gather_settings
from state_lib.gathering.hosts import hosts_seen
from state_lib.gathering.snapshots import snapshots_seen
from state_lib.kafka import Kafka
from state_lib.protocol.marker import now_ms
from state_lib.task.claiming import standing

if TYPE_CHECKING:
    from state_lib.config import Settings

HOST_TIMEOUT_S = 5.0
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Look:
    """What one look shows.

    Attributes:
        conditions: those that hold.
        sure: the subjects that could be seen; None: all.
        blind: why some could not.
        wrong: whether a person must correct that: a setting, a token, a right.
    """

    conditions: tuple[Condition, ...] = ()
    sure: frozenset[str] | None = None
    blind: str | None = None
    wrong: bool = False

    @property
    def shows_nothing(self) -> bool:
        """Whether nobody who would know could be asked."""
        return self.blind is not None and self.sure == NOTHING


class Sense:
    """Looks for one condition again and again. For one thread at a time.

    Args:
        settings: where brokers, hosts and storage are.
        app: the application's id.
        name: of the condition.
        snapshot_age_ms: how old the newest snapshot of a task may become.
        read_logs: read changelogs at some places, to see whether they are compacted.
        host_timeout_s: for the whole answer of each host; all are asked at the same time.
    """

    def __init__(
        self,
        settings: Settings,
        app: str,
        name: Name,
        *,
        snapshot_age_ms: int = SNAPSHOT_AGE_MS,
        read_logs: bool = False,
        host_timeout_s: float = HOST_TIMEOUT_S,
    ) -> None:
        self._settings, self._app = settings, app
        self._age_ms, self._read_logs = snapshot_age_ms, read_logs
        self._timeout_s = host_timeout_s
        self._kafka: Kafka | None = None
        self._looker: Looker | None = None
        self._stalling = Stalling(app)
        self._had: dict[str, tuple[str, ...]] = {}
        looks: dict[Name, Callable[[], Look]] = {
            "host-down": self._host_down,
            "task-without-owner": self._task_without_owner,
            "driver-stalled": self._driver_stalled,
            "changelog-unsafe": self._changelog_unsafe,
            "compaction-stuck": self._compaction_stuck,
            "store-lost": self._store_lost,
            "snapshot-stale": self._snapshot_stale,
            "disk-filling": self._disk_filling,
        }
        self._look = looks[name]

    def look(self) -> Look:
        """One look; ``blind`` is set if something cannot be asked now.

        Nothing is wrong with an application that has not run, or not since it was reset.

        Raises:
            ConfigurationError: what a person must correct, such as a refused log-in.
            Unauthorized: every host refuses the token.
        """
        try:
            return self._look()
        except LogLost as error:  # another condition reports that
            return Look(sure=NOTHING, blind=error.message)
        except NotFound as error:
            return Look(blind=error.message)
        except (ConfigurationError, Unauthorized):
            raise
        except (HoldfastError, KafkaException) as error:
            self.close()  # clients that met an absent broker are not reused: see `Looker`
            why = error.message if isinstance(error, HoldfastError) else str(error)
            return Look(sure=NOTHING, blind=why)

    def close(self) -> None:
        """Free Kafka clients; the next look makes new ones."""
        self._kafka = None
        if self._looker is not None:
            self._looker.close()
            self._looker = None

    def _asked(self) -> Kafka:
        if self._kafka is None:
            self._kafka = Kafka.of(self._settings)
        return self._kafka

    def _hosts(self, *, brief: bool = True) -> tuple[HostSeen, ...]:
        addresses, token = self._settings.host_addresses, self._settings.read_token()
        hosts = hosts_seen(addresses, token, self._app, self._timeout_s, brief=brief)
        if hosts and all(host.refused for host in hosts):
            raise Unauthorized(
                f"every state host refuses the token, {hosts[0].id} first: {hosts[0].away}. Set "
                "the connection's password, or HOLDFAST_TOKEN_FILE, to that of the hosts"
            )
        return hosts

    def _host_down(self) -> Look:
        hosts = self._hosts()
        for host in hosts:
            if host.away is None:
                self._had[host.id] = tuple(f"{self._app}/{t.partition}" for t in host.tasks)
        return Look(tuple(host_down(self._app, hosts, self._had)))

    def _task_without_owner(self) -> Look:
        kafka = self._asked()
        topology = declared(kafka, self._app)
        markers = tuple(standing(kafka, self._app))
        wanted = Wanted(0, 0, self._age_ms)
        facts = Facts(topology, now_ms(), wanted, {}, markers, self._hosts())
        return Look(tuple(task_without_owner(facts)))

    def _driver_stalled(self) -> Look:
        if self._looker is None:
            self._looker = Looker(self._settings, self._app)
        sight, now = self._looker.look(), time.monotonic()
        if self._looker.refused is not None:
            raise self._looker.refused
        if sight.away is not None:
            self._stalling.interrupted()
            return Look(sure=NOTHING, blind=sight.away)
        found, sure = self._stalling.feed(sight, now)
        return Look(found, None if sure else NOTHING)

    def _changelog_unsafe(self) -> Look:
        kafka = self._asked()
        try:
            if self._read_logs:
                facts = gather(self._settings, kafka, self._app, timeout_s=self._timeout_s)
            else:
                facts = gather_settings(self._settings, kafka, self._app)
        except LogLost as error:
            topic = topology_topic(self._app)
            needed, step = "what was declared", f"'holdfast repair topology {self._app}'"
            name: Name = "changelog-unsafe"
            lost = Condition(name, self._app, topic, error.message, needed, step, "topics")
            return Look((lost,), frozenset({topic}), error.message)
        return Look(tuple(changelog_unsafe(facts)))

    def _compaction_stuck(self) -> Look:
        facts = gather(self._settings, self._asked(), self._app, timeout_s=self._timeout_s)
        return Look(tuple(compaction_stuck(facts)))

    def _store_lost(self) -> Look:
        hosts = self._hosts()
        away = "; ".join(host.away for host in hosts if host.away is not None) or None
        found, seen = tuple(store_lost(self._app, hosts)), stores_seen(self._app, hosts)
        gone = away is None and not any(host.tasks for host in hosts)  # or not known there yet
        return Look(found, None if gone else seen, away)

    def _snapshot_stale(self) -> Look:
        kafka = self._asked()
        facts = gather_settings(self._settings, kafka, self._app)
        facts = replace(facts, wanted=replace(facts.wanted, snapshot_age_ms=self._age_ms))
        url = self._settings.snapshots_url
        seen = snapshots_seen(url, facts.topology, facts.topics, facts.markers, facts.now)
        return Look(tuple(snapshot_stale(replace(facts, snapshots=seen))))

    def _disk_filling(self) -> Look:
        hosts = self._hosts(brief=False)
        away = "; ".join(host.away for host in hosts if host.away is not None) or None
        found = tuple(disk_filling(self._app, hosts))
        return Look(found, frozenset(h.id for h in hosts if h.away is None) if away else None, away)
