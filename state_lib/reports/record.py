"""The record of a job while it runs and when it has ended: one small JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import orjson

from state_lib.errors import HoldfastError, from_wire
from state_lib.reports.folder import Reports

State = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class Record:
    """One job.

    Attributes:
        id: of it.
        host: the machine that it runs on.
        pid: of its process.
        at: when this was written, by that machine's clock (ms).
        phase: what it does, for people.
        state: ``running``, ``done`` or ``failed``.
        result: of one that is done.
        error: of one that has failed: `HoldfastError.to_wire`.
    """

    id: str
    host: str
    pid: int
    at: int
    phase: str = ""
    state: State = "running"
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether it says nothing more."""
        return self.state != "running"

    def outcome(self) -> Mapping[str, Any]:
        """The result.

        Raises:
            HoldfastError: the job's own, if it has failed.
        """
        if self.error is not None:
            raise from_wire(dict(self.error))
        if self.result is None:
            raise HoldfastError(f"job {self.id} on {self.host} has not ended yet", id=self.id)
        return self.result

    def write(self, reports: Reports) -> None:
        """Put it where the reader looks. Raises StorageUnavailable."""
        reports.write(f"{self.id}.json", orjson.dumps(asdict(self)))

    @classmethod
    def read(cls, reports: Reports, job: str) -> Self | None:
        """As it was written last; None before. Raises StorageUnavailable."""
        raw = reports.read(f"{job}.json")
        if raw is None:
            return None
        data = orjson.loads(raw)  # a newer version may have more fields
        return cls(**{k: v for k, v in data.items() if k in cls.__dataclass_fields__})
