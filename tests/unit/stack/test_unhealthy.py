"""What `holdfast up` tells of services that do not become healthy."""

from __future__ import annotations

from pathlib import Path

from state_lib.stack.unhealthy import Unhealthy, unavailable


def test_each_is_named_with_its_log_and_its_next_step(tmp_path: Path) -> None:
    for name in ("host-1", "host-2", "airflow"):
        (tmp_path / name).write_text(f"the trouble of {name}\n")
    late, ends = "is not healthy in 120 s", "ends as soon as it starts"
    error = unavailable(
        [
            Unhealthy("host-1", late, "RUNNING", tmp_path / "host-1", lives=True),
            Unhealthy("host-2", late, "RUNNING", tmp_path / "host-2", lives=True),
            Unhealthy("airflow", ends, "FATAL", tmp_path / "airflow", lives=False),
        ]
    )
    first, second, third = error.message.split("Correct the cause")[:3]
    assert "host-1 is not healthy in 120 s (state: RUNNING)" in first
    assert "the trouble of host-1" in first
    assert "the trouble of host-2" in second
    assert "the trouble of airflow" in third
    assert "does its work in part" in second
    assert error.message.endswith("then 'holdfast down' and 'holdfast up'.")
    assert error.details["service"] == "airflow"


def test_an_empty_log_is_called_so(tmp_path: Path) -> None:
    none = Unhealthy("host-1", "is not healthy in 1 s", "BACKOFF", tmp_path / "none", lives=False)
    assert "ends:\n(nothing)\n" in none.told()
