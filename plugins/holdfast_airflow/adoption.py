"""Is there a driver already? Asked before one is started, so that there is never a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from state_lib.errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from state_lib.config import Settings
    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import Sight


@dataclass(frozen=True)
class Found:
    """What there is before a driver is started.

    Attributes:
        process: a driver that lives.
        ending: it was asked to stop and has not done so yet.
        sight: the look that showed it.
    """

    process: DriverProcess | None
    ending: bool
    sight: Sight


def living(
    settings: Settings,
    app: str,
    known: DriverProcess | None,
    job: str,
    log: Logger,
    *,
    gone: str | None = None,
) -> Found:
    """The application's driver, if one lives: the one that Airflow remembers, or any other.

    Args:
        settings: of the application.
        app: its id.
        known: the driver that Airflow remembers.
        job: the file that would be started.
        log: of the task.
        gone: a driver that was judged gone: where only Kafka can tell, it may still be counted.

    Raises:
        ConfigurationError: a driver that Airflow does not know runs another file.
        Unavailable: Kafka cannot be asked, so it cannot be known.
    """
    from state_lib.drivers.look import Looker, observe

    looker = Looker(settings, app)
    try:
        sight, alive = observe(looker, known)
    finally:
        looker.close()
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
        return Found(None, ending=False, sight=sight)
    if process is not known:
        _check_same_job(app, process.id, job, sight)
    ending = sight.stop is not None and sight.away is None
    log.info(
        "Adopting driver %s (process %d on %s)%s",
        process.id,
        process.pid,
        process.host,
        f"; it was asked to stop: {sight.stop}. A new one is started then" if ending else "",
    )
    return Found(process, ending, sight)


def _lives(known: DriverProcess | None, alive: bool | None, sight: Sight) -> bool:  # noqa: FBT001
    from state_lib.drivers.supervision import START_PATIENCE_S

    if known is None or alive is not None:
        return bool(alive)
    # On another machine, where only Kafka can tell; it may not have joined its group yet.
    starting = time.time() - known.started_at / 1000 < START_PATIENCE_S
    ended = sight.end_of(known.id) is not None
    return known.id in sight.drivers or (starting and not ended)


def _check_same_job(app: str, driver: str, job: str, sight: Sight) -> None:
    """Two teams may have thought of one name: what one of them runs is not the other's to adopt."""
    facts = sight.facts
    if facts is None or facts.id != driver or not facts.file:
        return
    if PurePath(facts.file).name == PurePath(job).name:
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
    strangers = [driver for driver in sight.drivers if driver != dead]
    if not strangers:
        return None
    facts = sight.facts
    if facts is not None and facts.id in strangers:
        return DriverProcess(facts.id, app, facts.host, facts.pid, facts.log, facts.claimed_at)
    # It has joined and not claimed yet.
    return DriverProcess(strangers[-1], app, "", 0, "", sight.at)
