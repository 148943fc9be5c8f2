"""Reports of jobs: kept, told while they run, and judged by whoever waits."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from holdfast_airflow.jobs import SILENT_S, START_S, Job, Seen, Vigil, lives
from holdfast_airflow.triggers.job import JobTrigger
from state_lib.config import Settings
from state_lib.drivers.process import DriverProcess
from state_lib.errors import (
    ConfigurationError,
    HoldfastError,
    InvalidName,
    NotFound,
    StorageUnavailable,
    Unavailable,
)
from state_lib.reports import job as jobs
from state_lib.reports.folder import Reports, new_report
from state_lib.reports.job import Tell, run_job
from state_lib.reports.record import Record
from state_lib.snapshots.manifest import new_id
from state_lib.snapshots.storage import Storage
from tests.support.waiting import SLOWNESS, until

NOW = 1_800_000_000_000


@pytest.fixture
def reports(tmp_path: Path) -> Reports:
    return Reports(tmp_path.as_uri(), "app", "drill")


def test_the_last_ones_are_kept_with_all_their_files(reports: Reports, tmp_path: Path) -> None:
    ids = [new_id(NOW + i) for i in range(5)]
    for one in ids:
        reports.write(f"{one}.json", b"{}")
        reports.write(f"{one}.html", b"page")
    (tmp_path / "app" / "drill" / "notes.txt").write_text("somebody's own")
    reports.prune(2)
    assert reports.ids() == ids[:2:-1]
    left = {path.name for path in (tmp_path / "app" / "drill").iterdir()}
    assert left == {f"{i}.{end}" for i in ids[3:] for end in ("json", "html")} | {"notes.txt"}
    assert reports.read(f"{ids[0]}.json") is None
    assert reports.url("x.html") == f"{tmp_path.as_uri()}/app/drill/x.html"
    assert Reports(tmp_path.as_uri(), "nobody", "audit").ids() == []


def test_where_reports_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_REPORTS_URL", raising=False)
    assert Settings.load(home=tmp_path).reports_url == f"file://{tmp_path}/reports"
    assert Settings.load(reports_url="s3://b/r").reports_url == "s3://b/r"
    with pytest.raises(InvalidName, match="report folder"):
        Reports(tmp_path.as_uri(), "../other", "audit")
    with pytest.raises(ConfigurationError, match="HOLDFAST_REPORTS_URL"):
        Reports("nonsense://there", "app", "audit")


def test_a_job_tells_that_it_lives_and_leaves_its_result(reports: Reports) -> None:
    job, seen = new_report(), list[Record]()

    def work(tell: Tell) -> dict[str, Any]:
        tell("half of it")

        def told() -> bool:
            record = Record.read(reports, job)
            if record is not None and record.phase == "half of it":
                seen.append(record)
            return len({one.at for one in seen}) > 1

        until(told, 30, "told twice")
        return {"answer": 42}

    assert Record.read(reports, job) is None
    assert run_job(reports, job, work, beat_s=0.02) == 0
    assert not seen[-1].ended
    with pytest.raises(HoldfastError, match="has not ended yet"):
        seen[-1].outcome()
    done = Record.read(reports, job)
    assert done is not None
    assert (done.state, done.outcome()) == ("done", {"answer": 42})
    time.sleep(0.1)
    assert Record.read(reports, job) == done, "no sign of life after the last words"


def test_a_record_of_a_newer_version_is_read(reports: Reports) -> None:
    job = new_report()
    said = {"id": job, "host": "here", "pid": 1, "at": 2, "of_the_future": True}
    reports.write(f"{job}.json", orjson.dumps(said))
    assert Record.read(reports, job) == Record(job, "here", 1, 2)


@pytest.mark.parametrize(
    ("raised", "type_", "said"),
    [
        (NotFound("there is no such thing", known=[]), NotFound, "there is no such thing"),
        (ZeroDivisionError("of zero"), HoldfastError, "ZeroDivisionError: of zero"),
    ],
)
def test_a_job_leaves_its_error(
    reports: Reports, raised: Exception, type_: type[HoldfastError], said: str
) -> None:
    def work(tell: Tell) -> dict[str, Any]:
        del tell
        raise raised

    job = new_report()
    assert run_job(reports, job, work) == 1
    record = Record.read(reports, job)
    assert record is not None
    assert record.ended
    with pytest.raises(type_, match=said) as error:
        record.outcome()
    assert type(error.value) is type_


def test_a_result_waits_for_storage_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it gives up: here the folder is a file, which no wait mends."""
    monkeypatch.setattr(jobs, "LAST_TRY_S", 0.5)
    (tmp_path / "app").write_text("in the way")
    began = time.monotonic()
    with pytest.raises(StorageUnavailable, match="report storage"):
        run_job(Reports(tmp_path.as_uri(), "app", "drill"), new_report(), lambda _: {})
    assert time.monotonic() - began >= 0.5


def said(at: int = NOW, state: Any = "running") -> Record:
    return Record("id", "elsewhere", 1, at, state=state)


def test_who_can_be_seen_is_judged_by_its_process() -> None:
    vigil = Vigil(0.0)
    assert vigil.feed(Seen(True, None), 1e6) is None
    assert vigil.feed(Seen(True, said()), 2e6) is None
    assert vigil.feed(Seen(False, said()), 2e6) == "died"
    assert vigil.feed(Seen(False, None), 2e6) == "died"
    assert vigil.feed(Seen(False, said(state="failed")), 2e6) == "ended"
    assert vigil.feed(Seen(True, said(state="done")), 2e6) == "ended"
    assert vigil.feed(Seen(False, None, "storage is away"), 2e6) is None, "it may have its result"


def test_who_is_elsewhere_is_judged_by_its_signs_of_life() -> None:
    vigil = Vigil(0.0)
    assert vigil.feed(Seen(None, None), START_S) is None
    assert vigil.feed(Seen(None, None), START_S + 1) == "lost"
    assert vigil.feed(Seen(None, said(1)), START_S + 2) is None
    assert vigil.feed(Seen(None, said(2)), START_S + SILENT_S) is None
    assert vigil.feed(Seen(None, said(2)), START_S + 2 * SILENT_S) is None
    assert vigil.feed(Seen(None, None, "storage is away"), START_S + 3 * SILENT_S) is None
    assert vigil.feed(Seen(None, said(2)), START_S + 4 * SILENT_S) is None, "storage was away"
    assert vigil.feed(Seen(None, said(2)), START_S + 4 * SILENT_S + 1) == "lost"


def test_one_look_tells_whether_to_adopt() -> None:
    now = NOW / 1000
    assert Seen(True, None).lives(0, now)
    assert not Seen(False, said()).lives(now, now)
    assert not Seen(True, said(state="done")).lives(now, now)
    assert Seen(None, None).lives(now - START_S + 1, now)
    assert not Seen(None, None).lives(now - START_S - 1, now)
    assert Seen(None, said()).lives(0, now + SILENT_S - 1)
    assert not Seen(None, said()).lives(0, now + SILENT_S + 1)


def elsewhere(url: str, job: str) -> Job:
    process = DriverProcess(job, "drill-app", "another-machine", 7, "", 0)
    return Job("drill", "app", url, process.to_json())


def test_a_job_elsewhere_lives_while_it_gives_signs_whatever_its_clock(
    reports: Reports, tmp_path: Path
) -> None:
    job = elsewhere(tmp_path.as_uri(), new_report())
    Record(job.id, "another-machine", 7, at=1).write(reports)  # a clock that is far behind
    assert not lives(job, job.look(), again_s=0.1)

    def beats() -> None:
        Record(job.id, "another-machine", 7, at=2).write(reports)

    timer = threading.Timer(0.1, beats)
    timer.start()
    assert lives(job, job.look(), again_s=1.0)
    timer.join()


SLEEPS = """
import sys, time
from state_lib.reports.folder import Reports
from state_lib.reports.job import run_job
run_job(Reports(sys.argv[1], "app", "drill"), sys.argv[2], lambda _: time.sleep(600), beat_s=0.2)
"""


def test_a_job_elsewhere_ends_itself_once_a_user_does_not_want_it(
    reports: Reports, tmp_path: Path
) -> None:
    job = elsewhere(tmp_path.as_uri(), new_report())
    command = [sys.executable, "-c", SLEEPS, tmp_path.as_uri(), job.id]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: Record.read(reports, job.id), 60, "began")
            asyncio.run(JobTrigger(job.to_json(), until=0.0).on_kill())
            assert process.wait(30 * SLOWNESS) == -signal.SIGTERM
        finally:
            process.kill()
    record = Record.read(reports, job.id)
    assert record is not None
    with pytest.raises(HoldfastError, match="it was asked to end"):
        record.outcome()
    assert not lives(job, job.look(), again_s=0.0), "another one may be launched at once"


def test_storage_that_hangs_does_not_hold_up_the_end_of_a_trigger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(Storage, "read", lambda *_: ended.wait(60) and None)
    monkeypatch.setattr("holdfast_airflow.triggers.job.ANSWER_S", 0.2)
    job = elsewhere(tmp_path.as_uri(), new_report())
    trigger = JobTrigger(job.to_json(), until=time.time() + 1, look_every_s=0.1)

    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    try:
        event = asyncio.run(asyncio.wait_for(first(), 20 * SLOWNESS))
    finally:
        ended.set()
    assert event["event"] == "timed_out"
    assert "has not answered" in event["told"][-1]
    assert Path(tmp_path, "app", "drill", f"{job.id}.stop").exists(), "it was asked to end"


def test_where_nobody_can_say_nothing_is_launched(tmp_path: Path) -> None:
    (tmp_path / "app").write_text("in the way")
    job = elsewhere(tmp_path.as_uri(), new_report())
    with pytest.raises(Unavailable, match=r"the drill of app \(process 7 on another-machine\)"):
        lives(job, job.look())
