"""Is there a driver already? Asked before one is started, so that there is never a second."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from state_lib.errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk.types import Logger

    from state_lib.config import Settings
    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import DriverFacts, Sight, Stop

LOOK_S = 0.2
KILL_S = 3.0
"""How long a driver that is ended by a task has left; Airflow itself waits for 5 s for a task that
it kills."""


@dataclass(frozen=True)
class Found:
    """What there is before a driver is started.

    Attributes:
        process: a driver that lives.
        sight: the look that showed it.
        heeds_from: the offset from which on it heeds requests; None: not known.
    """

    process: DriverProcess | None
    sight: Sight
    heeds_from: int | None = None

    def heeds(self, request: Stop | None) -> bool:
        """Whether a request is one that the driver heeds."""
        known = None if self.process is None or self.sight.away is not None else self.heeds_from
        return request is not None and known is not None and request.offset >= known

    @property
    def ending(self) -> int:
        """The newest request to stop that it heeds, as its offset; -1: none."""
        asked = self.sight.asked
        return asked.offset if asked is not None and self.heeds(asked) else -1


def find_driver(  # noqa: PLR0913 - what is asked, and all that is known
    settings: Settings,
    app: str,
    known: DriverProcess | None,
    job: str,
    log: Logger,
    *,
    gone: str | None = None,
    heeds_from: int = -1,
    submission: Mapping[str, str] | None = None,
) -> Found:
    """The application's driver, if one lives: the one that Airflow remembers, or any other.

    One that has said its last words lives no more. Where its process hangs in its exit, it is ended
    before this returns.

    Args:
        settings: of the application.
        app: its id.
        known: the driver that Airflow remembers.
        job: the file that would be started: a full path, or a URL.
        log: of the task.
        gone: a driver that was judged gone: where only Kafka can tell, it may still be counted.
        heeds_from: the offset from which on the known driver heeds requests; -1: not known.
        submission: what the cluster calls the known driver, as `Submission.to_json`.

    Raises:
        ConfigurationError: a driver that Airflow does not know runs another file.
        Unavailable: Kafka cannot be asked, so it cannot be known; or a process survives SIGKILL.
    """
    from state_lib.drivers.look import Looker, observe

    looker = Looker(settings, app)
    try:
        sight, alive = observe(looker, known)
    finally:
        looker.close()
    if alive is None and submission is not None:
        alive = _active(submission)
    if sight.away is not None and not alive:
        raise Unavailable(
            f"Kafka cannot be asked whether a driver of {app!r} runs: {sight.away}. The task is "
            "tried again; look at the brokers, or at HOLDFAST_BOOTSTRAP_SERVERS",
            app=app,
        )
    if known is not None and known.id == gone and alive is None:
        alive = False
    process = known if _lives(known, alive, sight) else _stranger(app, known, sight)
    if process is None:
        if known is not None and sight.end_of(known.id) is not None:
            see_off(known, log, waited=known.id == gone)
        return Found(None, sight)
    if process is not known:
        _check_same_job(app, process.id, job, sight)
    if process is not known or heeds_from < 0:  # only of a claim is it known what came before it
        heeds_from = sight.epoch + 1 if sight.driver == process.id else -1
    found = Found(process, sight, heeds_from if heeds_from >= 0 else None)
    log.info(
        "Adopting driver %s (%s)%s",
        process.id,
        f"process {process.pid} on {process.host}" if process.host else "seen through Kafka",
        f"; it was asked to stop: {sight.asked.why}" if sight.asked and found.ending >= 0 else "",
    )
    return found


def see_off(process: DriverProcess, log: Logger, *, waited: bool) -> None:
    """Wait until a driver that has said its last words is gone; end it if it hangs.

    Args:
        process: of the driver; on another machine nothing is done.
        log: of the task.
        waited: it has had its time to end.

    Raises:
        Unavailable: it survives SIGKILL.
    """
    from state_lib.drivers.living import DYING_S

    deadline = time.monotonic() + (0 if waited else DYING_S)
    while process.alive():
        if time.monotonic() >= deadline:
            log.warning("Driver %s has ended and its process does not: ending it", process.id)
            process.end(KILL_S)
            return
        time.sleep(LOOK_S)


def same_job(facts: DriverFacts, job: str, user: str) -> bool:
    """Whether a driver runs our job.

    On one machine a file's full path tells. On another one, or in a container, the same job may lie
    elsewhere: there its name and its user tell.

    Args:
        facts: what the driver says of itself.
        job: our file: a full path, or a URL.
        user: who would start it.
    """
    if not facts.file or facts.file == job:
        return True
    if PurePath(facts.file).name != PurePath(job).name:
        return False
    if facts.host == socket.gethostname() and "://" not in job:
        return Path(facts.file).resolve() == Path(job).resolve()
    return facts.user in ("", user)


def _active(submission: Mapping[str, str]) -> bool | None:
    from holdfast_airflow.hooks.cluster import Submission  # noqa: PLC0415 - for clusters only

    return Submission(**submission).seen()


def _lives(known: DriverProcess | None, alive: bool | None, sight: Sight) -> bool:  # noqa: FBT001
    from state_lib.drivers.living import START_PATIENCE_S

    if known is None or sight.end_of(known.id) is not None:
        return False
    if alive is not None:
        return alive
    # On another machine, where only Kafka can tell. One that was launched there may not have joined
    # its group yet; whoever is known by its group alone (no host) has.
    starting = known.host and time.time() - known.started_at / 1000 < START_PATIENCE_S
    return known.id in sight.drivers or bool(starting)


def _check_same_job(app: str, driver: str, job: str, sight: Sight) -> None:
    """Two teams may have thought of one name: what one of them runs is not the other's to adopt."""
    from state_lib.changelog.claims import user_name

    facts = sight.facts
    if facts is None or facts.id != driver or same_job(facts, job, user_name()):
        return
    raise ConfigurationError(
        f"application {app!r} is run by another job: {facts.file} of user {facts.user} (process "
        f"{facts.pid} on {facts.host}), and not by {job}. Give this one another application id; "
        f"or stop that one first: 'holdfast stop {app} --wait'",
        app=app,
        file=facts.file,
    )


def _stranger(app: str, known: DriverProcess | None, sight: Sight) -> DriverProcess | None:
    """A living driver that Airflow does not know: started by hand, or by a worker that died."""
    from state_lib.drivers.process import DriverProcess

    dead = None if known is None else known.id
    strangers = [d for d in sight.drivers if d != dead and sight.end_of(d) is None]
    if not strangers:
        return None
    facts = sight.facts
    if facts is not None and facts.id in strangers:
        found = DriverProcess(facts.id, app, facts.host, facts.pid, facts.log, facts.claimed_at)
        # Without our mark in its processes it lives for as long as Kafka says so.
        return replace(found, host="") if found.alive() is False else found
    # It has joined and not claimed yet.
    return DriverProcess(strangers[-1], app, "", 0, "", sight.at)
