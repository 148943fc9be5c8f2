"""What pytest-reportlog wrote of one run of pytest, also of one that was killed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOGS = "logs"
"""What tests/conftest.py calls the logs that it adds to a failure."""
FLAKY = "FlakyStart"
"""The warning of tests/support/brokers.py."""
_MOST = 3000
_ERRORS = 5


@dataclass(frozen=True)
class Failure:
    """A test that failed, in its set-up, its call or its end."""

    nodeid: str
    when: str
    message: str
    logs: str

    @property
    def not_caught_up(self) -> bool:
        """Not in time, but on its way: the one failure that is worth a second try."""
        return self.message.startswith("tests.support.waiting.NotCaughtUp:")

    @property
    def errors(self) -> list[str]:
        """The last different errors that our own processes logged meanwhile."""
        said = (line for line in self.logs.splitlines() if '"level": "error"' in line)
        what = (line.split('"level": "error"')[0].rstrip(", ") for line in said)
        return list(dict.fromkeys(what))[-_ERRORS:]


@dataclass
class Report:
    """A run so far."""

    passed: int = 0
    failures: list[Failure] = field(default_factory=list)
    running: str | None = None
    flaky: list[str] = field(default_factory=list)
    """What did not start at once."""
    skipped: list[str] = field(default_factory=list)
    """Tests that this machine lacks something for, with what that is."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each test, with its fixtures."""

    def slowest(self, most: int = 8) -> list[str]:
        """The tests that took longest, a line each."""
        found = sorted(self.seconds.items(), key=lambda item: -item[1])[:most]
        return [f"{seconds:4.0f} s  {nodeid}" for nodeid, seconds in found]


def read(path: Path) -> Report:
    """Read it; a last line that is cut is left out."""
    report = Report()
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            break
        kind = entry.get("$report_type")
        if kind == "WarningMessage" and entry["category"] == FLAKY:
            report.flaky.append(entry["message"][:_MOST])
        if kind not in {"TestReport", "CollectReport"}:
            continue
        if entry["outcome"] == "failed":
            report.failures.append(_failure(entry))
        elif entry["outcome"] == "skipped" and not entry.get("wasxfail"):
            report.skipped.append(f"{entry['nodeid']}: {entry['longrepr'][-1]}")
        elif kind == "TestReport" and entry["when"] == "call":
            report.passed += entry["outcome"] == "passed"
        if kind == "TestReport":
            took = report.seconds.get(entry["nodeid"], 0.0) + entry["duration"]
            report.seconds[entry["nodeid"]] = took
            report.running = None if entry["when"] == "teardown" else entry["nodeid"]
    return report


def _failure(entry: dict[str, Any]) -> Failure:
    why = entry["longrepr"]
    crash = why.get("reprcrash") if isinstance(why, dict) else None
    message = crash["message"] if crash else str(why)
    logs = "\n".join(text for title, text in entry.get("user_properties", ()) if title == LOGS)
    return Failure(entry["nodeid"], entry.get("when", "collection"), message[:_MOST], logs)
