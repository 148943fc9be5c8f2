"""``python -m state_lib.host --id host-1``: one state host, until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

import structlog

from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.extras import missing
from state_lib.heap import share_heap
from state_lib.logs import configure_logging
from state_lib.signals import hear

log = structlog.get_logger(__name__)
LOOK_S = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run a host; 0 when stopped by a signal, 1 when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m state_lib.host", description=__doc__)
    parser.add_argument("--id", required=True, help="which of HOLDFAST_HOSTS this one is")
    host_id: str = parser.parse_args(arguments).id
    share_heap()
    stop = threading.Event()
    hear(stop.set, signal.SIGTERM, signal.SIGINT)
    try:
        from state_lib.host.server import StateHost  # noqa: PLC0415 - its extra may be missing

        settings = Settings.load()
        configure_logging(settings.log_level)
        host = StateHost(settings, host_id)
        host.start()
    except HoldfastError as error:
        log.error("host cannot start", host=host_id, why=error.message)
        return 1
    except ModuleNotFoundError as error:
        wanted = missing(error)
        if wanted is None:
            raise
        log.error("host cannot start", host=host_id, why=wanted.message)
        return 1
    # With a time-out: a signal that another thread receives, as after a SIGCONT, does not wake a
    # lock that this one waits for.
    while not stop.wait(LOOK_S):
        pass
    host.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
