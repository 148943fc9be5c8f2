"""What a host that starts learns from Kafka: the applications that have tasks on it.

A host remembers its applications on disk. One that lost its disk would know none until their
drivers claim again, and call itself ready meanwhile. The newest claim of each application says on
which hosts its tasks are.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import structlog

from state_lib.changelog.claims import Claim, candidates, newest_claim
from state_lib.errors import HoldfastError, Unavailable
from state_lib.host.learning import declared_by
from state_lib.host.tasks import EVERY, TaskManager
from state_lib.names import check_name
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import assign

log = structlog.get_logger(__name__)
_FIRST_S, _MOST_S = 0.5, 10.0
_AT_ONCE = 8


class Discovery:
    """Looks until it has seen every application's newest claim, in a thread of its own.

    Files that the host cannot read are looked at again meanwhile (`Applications.recall`). Until all
    is known, the manager's readiness says what is missing.

    Args:
        manager: of this host.
        address: of this host: an application whose driver knows it by another has no tasks here.
    """

    def __init__(self, manager: TaskManager, address: HostAddress) -> None:
        self._manager, self._address = manager, address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)
        self._refused: set[str] = set()  # logged only once

    def start(self) -> None:
        """Begin: from now on the host is not ready before it knows its applications."""
        self._manager.unlearned = {EVERY: "Kafka is asked which ones have tasks here"}
        self._thread.start()

    def stop(self) -> None:
        """End; a look that is under way is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        wait = _FIRST_S
        while not self._stop.is_set():
            self._manager.unlearned = self._look()
            self._manager.applications.recall()
            if not self._manager.unlearned and not self._manager.applications.unread:
                return
            self._stop.wait(wait)
            wait = min(wait * 2, _MOST_S)

    def _look(self) -> dict[str, str]:
        """One look; what could not be learned, and why."""
        try:
            apps = [app for app in candidates(self._manager.context.kafka) if self._is_new(app)]
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="discovery") as pool:
                answers = dict(zip(apps, pool.map(self._learn, apps), strict=True))
        except HoldfastError as error:
            log.warning("applications are not known yet", why=error.message)
            return {EVERY: f"Kafka cannot be asked which ones have tasks here: {error.message}"}
        except Exception as error:  # retried later
            log.exception("applications are not known yet")
            return {EVERY: f"it cannot be told which ones have tasks here: {error!r}"}
        return {app: why for app, why in answers.items() if why is not None}

    def _is_new(self, app: str) -> bool:
        return app not in self._manager.apps and app not in self._refused

    def _learn(self, app: str) -> str | None:
        """Adopt an application whose tasks are here; returns why that is not known or not done."""
        try:
            claim = newest_claim(self._manager.context.kafka, check_name("application", app))
            if claim is not None and self._is_here(app, claim):
                self._manager.applications.adopt(declared_by(self._manager.context.kafka, claim))
                log.info("learned from Kafka", app=app, epoch=claim.epoch)
        except Unavailable as error:
            return error.message
        except HoldfastError as error:  # not ours, or a claim of a newer version
            self._refused.add(app)
            log.warning("not taken for an application", app=app, why=error.message)
        except Exception:  # a malformed record must not affect other applications
            self._refused.add(app)
            log.exception("not taken for an application", app=app)
        return None

    def _is_here(self, app: str, claim: Claim) -> bool:
        """Whether its driver would ask this host for tasks; opening them fences their owner."""
        topology = claim.topology
        if topology.app != app or claim.notice is not None or self._address not in claim.hosts:
            return False
        theirs = assign(app, topology.partitions, claim.hosts)
        ours = assign(app, topology.partitions, tuple(self._manager.hosts))
        me = self._address.id
        if any(o.id == me and t.id != me for o, t in zip(ours, theirs, strict=True)):
            log.warning(
                "not taken: its driver's list of hosts differs from this host's",
                app=app,
                theirs=[str(h) for h in claim.hosts],
                ours=[str(h) for h in self._manager.hosts],
            )
            self._refused.add(app)
            return False
        return any(t.id == me for t in theirs)
