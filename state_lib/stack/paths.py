"""Where the stack keeps its files, below one home."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from state_lib.errors import ConfigurationError

# A socket's path is bounded by the kernel at 108 bytes on Linux and 104 on macOS; supervisor binds
# to a name that is up to 11 bytes longer (a dot and its process id) and links it into place.
SOCKET_PATH_BYTES = 90
MARK = ".holdfast-home"


@dataclass(frozen=True)
class Paths:
    """The layout of a home."""

    home: Path

    @property
    def run(self) -> Path:
        """Record, configuration, socket and lock of the running stack."""
        return self.home / "run"

    @property
    def logs(self) -> Path:
        """One file per service, rotated by the supervisor."""
        return self.home / "logs"

    @property
    def config(self) -> Path:
        """The supervisor's configuration, written by each start."""
        return self.run / "supervisord.conf"

    @property
    def record(self) -> Path:
        """Which supervisor is ours."""
        return self.run / "stack.json"

    @property
    def lock(self) -> Path:
        """Held by `up` and `down`, so that two at once do not mix."""
        return self.run / "lock"

    @property
    def socket(self) -> Path:
        """The supervisor's socket: in the temporary directory if the home's path is too long."""
        inside = self.run / "supervisor.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_BYTES:
            return inside
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-{digest}.sock"

    def log(self, name: str) -> Path:
        """The log of a service, or of ``supervisord``."""
        return self.logs / f"{name}.log"

    def all_logs(self) -> list[Path]:
        """The logs that there are, supervisor's, services' and drivers'."""
        return sorted(self.logs.glob("*.log"))

    def create(self) -> None:
        """Make the directories; mark the home as ours if nobody had put anything there."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not any(self.home.iterdir()):
            (self.home / MARK).write_text("Made by holdfast up; holdfast down --wipe removes it.\n")
        self.run.mkdir(mode=0o700, exist_ok=True)
        self.logs.mkdir(exist_ok=True)

    def wipe(self) -> None:
        """Remove the home and all data in it.

        Raises:
            ConfigurationError: the home existed before Holdfast did: it may hold other things.
        """
        if not self.home.exists():
            return
        if not (self.home / MARK).exists():
            message = (
                f"{self.home} was not made by Holdfast (no {MARK} in it), so it is not removed "
                "whole. Remove what you no longer need by hand."
            )
            raise ConfigurationError(message, home=str(self.home))
        shutil.rmtree(self.home)
