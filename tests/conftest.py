"""What holds for all tests."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import settings

from state_lib.logs import Stderr
from tests.support import airflow_home, evidence
from tests.support.waiting import SLOWNESS

# A machine that does something else for a moment is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
airflow_home.settle()

_STARTED = pytest.StashKey[float]()
_QUARANTINED = pytest.StashKey[list[str]]()
_DATED = re.compile(r"\d{4}-\d\d-\d\d: \S.{20,}")


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """A command sets logging up for all of its process: which here is that of other tests."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if structlog.get_config()["logger_factory"] is not Stderr:
        return
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


@pytest.hookimpl(tryfirst=True)  # before -m leaves them out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Who is in quarantine has a date and a mechanism, and is named; limits fit the machine."""
    named = config.stash[_QUARANTINED] = []
    usual = float(config.getini("timeout"))
    for item in items:
        mark = item.get_closest_marker("timeout")
        limit_s = float(mark.args[0]) if mark else usual
        item.add_marker(pytest.mark.timeout(limit_s * SLOWNESS), append=False)
        for mark in item.iter_markers("quarantine"):
            reason = mark.kwargs.get("reason", "")
            if not _DATED.match(reason):
                message = f"{item.nodeid}: the reason of its quarantine must be 'DATE: mechanism'"
                raise pytest.UsageError(message)
            named.append(f"{item.nodeid} ({reason})")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name them."""
    for line in config.stash.get(_QUARANTINED, []):
        terminalreporter.write_line(f"IN QUARANTINE {line}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure has with it what the logs said meanwhile."""
    report = yield
    started = item.stash.setdefault(_STARTED, call.start)
    if report.failed:
        folder = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        gate = item.config.getoption("report_log")  # it says so itself, last of all
        kept = report.user_properties if gate else report.sections
        kept.append((evidence.SECTION, evidence.since(folder, started)))
    return report
