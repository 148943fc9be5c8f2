"""What a driver asks of Kafka first, begun while its JVM starts: brokers may be far away."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from state_lib.drivers.watched import Watched
from state_lib.errors import HoldfastError

if TYPE_CHECKING:
    from state_lib.config import Settings


class Early:
    """Connects in a thread, and takes requests to the driver from now on.

    Only an optimization: what fails here fails again when the driver connects, and is raised then.
    """

    def __init__(self, app: str, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._watched: Watched | None = None
        self._thread = threading.Thread(target=self._connect, name="early", daemon=True)
        self._thread.start()

    def watched(self) -> Watched:
        """The driver's connection to the outside, once it is made.

        Raises:
            ConfigurationError: a file that a setting names cannot be read.
        """
        self._thread.join()
        return self._watched or Watched.of(self._app, self._settings)

    def _connect(self) -> None:
        with contextlib.suppress(HoldfastError, KafkaException):
            self._watched = Watched.of(self._app, self._settings)
            self._watched.control.begin()
