"""Logging of a process."""

from __future__ import annotations

import pytest
import structlog

from state_lib.logs import configure_logging


def test_a_logger_that_spoke_before_heeds_who_sets_logging_up_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = structlog.get_logger()
    for level in ("ERROR", "INFO", "ERROR"):
        configure_logging(level)
        log.info("said", at=level)
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert '"at": "INFO"' in line
