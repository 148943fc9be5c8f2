"""What `holdfast up` tells of services that do not become healthy."""

from __future__ import annotations

from pathlib import Path

from state_lib.stack.unhealthy import Unhealthy, unavailable


def found(folder: Path, name: str, *, lives: bool) -> Unhealthy:
    (folder / name).write_text(f"the trouble of {name}\n")
    return Unhealthy(name, "is not healthy in 120 s", "running", folder / name, lives=lives)


def test_each_is_named_with_its_log(tmp_path: Path) -> None:
    hosts = [found(tmp_path, name, lives=True) for name in ("host-1", "host-2")]
    told = unavailable(hosts).message
    for name in ("host-1", "host-2"):
        assert f"{name} is not healthy in 120 s (state: running)" in told
        assert f"ends:\nthe trouble of {name}\n" in told
    assert told.endswith("all else that was asked for is started.")


def test_what_starts_after_one_that_does_not_live_is_not_said_to_be_started(tmp_path: Path) -> None:
    last = found(tmp_path, "airflow", lives=False)
    error = unavailable([found(tmp_path, "host-1", lives=True), last])
    assert "the trouble of host-1" in error.message
    assert error.message.endswith("then 'holdfast down' and 'holdfast up'.")
    assert "is started" not in error.message
    assert error.details["service"] == "airflow"


def test_an_empty_log_is_called_so(tmp_path: Path) -> None:
    none = Unhealthy("host-1", "is not healthy in 1 s", "backoff", tmp_path / "none", lives=False)
    assert none.told().endswith("ends:\n(nothing)")
