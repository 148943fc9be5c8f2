"""Storage that takes connections and never says a word holds nobody up for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3fs import S3FileSystem

from state_lib.errors import StorageUnavailable
from state_lib.gathering.snapshots import snapshots_seen
from state_lib.snapshots import storage as module
from state_lib.snapshots.storage import Storage
from state_lib.snapshots.write import write_snapshot
from tests.support.dripping import silent
from tests.support.snapshots import Source
from tests.support.waiting import SLOWNESS

URL, LIMIT_S = "s3://bucket/some/prefix", 0.5
ENDS_S = 15.0
"""Far less than the tries of S3's client take together, which are minutes, or for ever."""


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "ANSWER_S", LIMIT_S)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    with silent() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        S3FileSystem.clear_instance_cache()
        yield
    S3FileSystem.clear_instance_cache()


def ends(ask: Callable[[], object]) -> str:
    """What is said, in time."""
    began = time.monotonic()
    with pytest.raises(StorageUnavailable) as raised:
        ask()
    assert time.monotonic() - began < ENDS_S * SLOWNESS
    return raised.value.message


@pytest.mark.timeout(120)
@pytest.mark.parametrize("question", ["list", "read", "write", "upload", "delete", "rename"])
def test_every_question_ends(question: str, tmp_path: Path) -> None:
    """A write did not: its client waits without a limit for the word to go on."""
    storage, local = Storage(URL, "app", "0"), tmp_path / "local"
    local.write_bytes(b"content")
    asked: dict[str, Callable[[], object]] = {
        "list": lambda: storage.listing("manifests"),
        "read": lambda: storage.read("manifests/one"),
        "write": lambda: storage.write("manifests/one", b"content"),
        "upload": lambda: storage.upload(local, "files/one"),
        "delete": lambda: storage.delete(["files/one"]),
        "rename": lambda: storage.rename("files/one", "files/one.bad"),
    }
    said = ends(asked[question])
    assert f"{URL}/app/0: cannot " in said
    assert "no answer within" in said


@pytest.mark.timeout(120)
def test_a_snapshot_fails_and_a_check_says_that_storage_is_away(source: Source) -> None:
    source.write({b"a": b"1"})
    ends(lambda: write_snapshot(source.request(URL)))
    began = time.monotonic()
    seen = snapshots_seen(URL, source.topology, {}, (), 0)
    assert time.monotonic() - began < ENDS_S * SLOWNESS
    assert seen.away is not None
    assert "no answer within" in seen.away


def test_a_large_file_is_given_its_time() -> None:
    assert module._writing_s(0) == LIMIT_S
    assert module._writing_s(64 << 20) == LIMIT_S + 1024
