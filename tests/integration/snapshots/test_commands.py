"""`holdfast snapshot` over two hosts: create, list, verify, prune, savepoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from state_lib.cli import app as command
from state_lib.client import snapshots as client_of_snapshots
from state_lib.client.snapshots import SnapshotClient
from state_lib.config import Settings
from state_lib.errors import InvalidRequest, Realign, Unavailable
from state_lib.host.tasks import TaskManager
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import find, list_snapshots, task_storage
from state_lib.snapshots.savepoints import list_savepoints, write_savepoint
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, App, app_of, batch, kv
from tests.support.environment import set_environment
from tests.support.hosts import address, claim, publish, served
from tests.support.snapshots import entries_of

PARTITIONS = 3
TOKEN = "only-for-tests"


class Served:
    """An application of three tasks on two hosts, and a driver's part of it."""

    def __init__(self, app: App, stack: ExitStack) -> None:
        self.app = app
        hosts = [address("host-1"), address("host-2")]
        self.settings = Settings.load(
            home=app.root,
            bootstrap_servers=str(app.kafka.properties["bootstrap.servers"]),
            hosts=",".join(f"{a.id}={a.host}:{a.flight_port}/{a.http_port}" for a in hosts),
            token=TOKEN,
        )
        self.url = self.settings.snapshots_url
        epoch = publish(app)
        managers: Mapping[str, TaskManager] = {
            at.id: stack.enter_context(served(app, at, TOKEN, hosts)) for at in hosts
        }
        self.tasks: list[StateTask] = []
        for p in range(PARTITIONS):
            manager = managers[owner_of(app.name, p, hosts).id]
            claim(manager, app, epoch, p)
            self.tasks.append(manager.task(app.name, p))

    def commit(self, partition: int) -> Marker:
        """The next batch of one task, which writes its number."""
        task = self.tasks[partition]
        n = task.marker.batch_number + 1
        return task.commit(batch(task.marker, {"kv": kv(("n", f"{n}"), (f"k{n}", "x"))}))

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Batches of all tasks, one after the other, task by task."""
        stop = threading.Event()

        def drive() -> None:
            while not stop.wait(0.05):
                for partition in range(PARTITIONS):
                    self.commit(partition)

        thread = threading.Thread(target=drive)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)

    def client(self) -> SnapshotClient:
        return SnapshotClient(self.settings, self.app.name)


@pytest.fixture
def cluster(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    base = make_app()
    app = app_of(base.kafka, f"{base.name}-three", base.root, [KV])
    app.topology = replace(app.topology, partitions=PARTITIONS)
    app.create()
    with ExitStack() as stack:
        made = Served(app, stack)
        set_environment(monkeypatch, made.settings)
        yield made


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(command, ["snapshot", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def killed(point: str, *arguments: str) -> None:
    """In a process of its own, by SIGKILL."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("holdfast")), "snapshot", *arguments],
        env={**os.environ, "HOLDFAST_FAILPOINTS": f"{point}=kill"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def run_json(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_the_commands(cluster: Served) -> None:
    app = cluster.app.name
    assert "no snapshots" in run("list", app).output
    for partition in range(PARTITIONS):
        cluster.commit(partition)
    made = run_json("create", app)["snapshots"]
    assert [job["task"] for job in made] == [f"{app}/{p}" for p in range(PARTITIONS)]
    assert {job["state"] for job in made} == {"done"}
    assert "uploaded" in run("create", app, "--task", "1").output
    listed = run_json("list", app)
    assert [s["task"] for s in listed["snapshots"]].count(f"{app}/1") == 2
    assert listed["savepoints"] == []
    first = made[0]["snapshot"]
    assert run_json("list", app, "--task", "0")["snapshots"][0]["id"] == first
    assert first in run("list", app).output

    assert run("verify", app, first, "--deep").output.count("whole") == 1
    assert run("verify", app).output.count("whole") == 4
    done = run_json("prune", app, "--keep", "1", "--dry-run")
    assert [len(t["pruned"]) for t in done["tasks"]] == [0, 1, 0]
    assert len(list_snapshots(cluster.url, app, 1)) == 2
    assert "pruned" in run("prune", app, "--keep", "1").output
    assert len(list_snapshots(cluster.url, app, 1)) == 1

    run("create", app, "--task", "0")
    files = Path(cluster.url.removeprefix("file://"), app, "0", "files")
    largest = max(files.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(bytes(largest.stat().st_size))
    changed = run_json("verify", app, "--deep", code=1)["snapshots"]
    both = [v["problems"] for v in changed if v["task"] == f"{app}/0"]
    assert ["set aside" in str(problems) for problems in both] == [True, True]
    assert len(run_json("verify", app, code=1)["snapshots"]) == len(changed), "each is told once"

    for path in files.iterdir():
        path.unlink()
    verdicts = run_json("verify", app, code=1)["snapshots"]
    assert [bool(v["problems"]) for v in verdicts].count(True) == 2
    assert "is missing" in run("verify", app, first, code=1).output
    assert run_json("list", app, "--task", "0")["snapshots"] == []


def test_what_cannot_be_done_says_so(cluster: Served) -> None:
    app = cluster.app.name
    assert "never run" in run("create", "nobody", code=1).stderr
    assert "0 to 2" in run("create", app, "--task", "9", code=1).stderr
    assert "no snapshot" in run("verify", app, "20260101T000000000Z-12345678", code=1).stderr
    assert "id" in run("verify", app, "../../etc", code=1).stderr
    run("prune", app, code=2)
    assert "never run" in run("prune", "nobody", "--keep", "1", code=1).stderr
    blocking = Path(cluster.url.removeprefix("file://"))
    blocking.write_text("a file")
    failed = run("create", app, "--task", "0", code=1)
    assert "ask again" in failed.stderr
    assert blocking.as_uri() in failed.stderr
    blocking.unlink()
    run("create", app, "--task", "0")


def test_a_savepoint_of_an_idle_application(cluster: Served) -> None:
    app, url = cluster.app.name, cluster.url
    for partition in range(PARTITIONS):
        cluster.commit(partition)
    made = run_json("savepoint", app)
    (listed,) = list_savepoints(url, app)
    assert listed.id == made["id"]
    assert (listed.batch_number, len(listed.snapshots)) == (1, PARTITIONS)
    assert made["id"] in run("list", app).output
    assert run("verify", app, made["id"], "--deep").output.count("whole") == PARTITIONS

    for partition in range(PARTITIONS):
        cluster.commit(partition)
    run("create", app)
    run("prune", app, "--keep", "1")
    assert list_savepoints(url, app) == [listed], "its snapshots were spared"
    gone = run_json("prune", app, "--keep", "1", "--savepoints", "0", "--dry-run")
    assert gone["savepoints"] == [listed.id]
    run("prune", app, "--keep", "1", "--savepoints", "0")
    assert list_savepoints(url, app) == []


def test_killed_before_a_savepoint_is_listed(cluster: Served) -> None:
    """Every task's snapshot is there, and nothing names them yet."""
    app, url = cluster.app.name, cluster.url
    for partition in range(PARTITIONS):
        cluster.commit(partition)
    killed("snapshot.before_savepoint", "savepoint", app)
    assert list_savepoints(url, app) == []
    assert run_json("list", app)["savepoints"] == []
    taken = [[m.id for m in list_snapshots(url, app, p) if m.savepoint] for p in range(PARTITIONS)]
    assert [len(ids) for ids in taken] == [1] * PARTITIONS
    run("verify", app)

    made = run_json("savepoint", app)
    (listed,) = list_savepoints(url, app)
    assert (listed.id, listed.batch_number) == (made["id"], 1)
    for partition in range(PARTITIONS):
        assert taken[partition][0] in {m.id for m in list_snapshots(url, app, partition)}
    assert run("verify", app, made["id"], "--deep").output.count("whole") == PARTITIONS


def test_killed_between_the_steps_of_a_prune(cluster: Served) -> None:
    app, url = cluster.app.name, cluster.url

    def listed() -> list[list[str]]:
        return [[m.id for m in list_snapshots(url, app, p)] for p in range(PARTITIONS)]

    for _ in range(2):
        for partition in range(PARTITIONS):
            cluster.commit(partition)
        run("create", app)
    before = listed()
    assert [len(ids) for ids in before] == [2] * PARTITIONS
    killed("snapshot.prune", "prune", app, "--keep", "1")
    assert listed() == before, "not yet"
    run("verify", app)

    assert "pruned" in run("prune", app, "--keep", "1").output
    assert listed() == [ids[:1] for ids in before]
    assert run("verify", app, "--deep").output.count("whole") == PARTITIONS


def test_a_savepoint_while_batches_are_committed(cluster: Served, tmp_path: Path) -> None:
    with cluster.driving():
        made = cluster.client().savepoint()
    before = made.batch_number
    assert before > 0
    for partition, snapshot in enumerate(made.snapshots):
        manifest = find(cluster.url, cluster.app.name, partition, snapshot)
        assert (manifest.savepoint, manifest.marker.batch_number) == (made.id, before)
        assert manifest.marker.positions.to_json() == made.positions
        fetch(manifest, tmp_path / f"{partition}")
        held = entries_of(tmp_path / f"{partition}", cluster.app.topology)
        assert held[b"n"] == b"%d" % before
        assert len(held) == before + 1


def test_tasks_that_never_meet_make_no_savepoint(
    cluster: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_of_snapshots, "_COMMIT_WAIT_S", 0.5)
    cluster.commit(0)
    with pytest.raises(Unavailable, match="no savepoint"):
        cluster.client().savepoint(timeout_s=1)
    assert list_savepoints(cluster.url, cluster.app.name) == []


def test_a_savepoint_needs_equal_positions(cluster: Served) -> None:
    app, url = cluster.app.name, cluster.url
    cluster.client().create()
    manifests = [list_snapshots(url, app, p)[0] for p in range(PARTITIONS)]
    elsewhere = replace(manifests[1].marker, positions=Positions({("source", 0): 99}))
    with pytest.raises(Realign, match="take the savepoint again"):
        write_savepoint(
            url, manifests[0].id, [manifests[0], replace(manifests[1], marker=elsewhere)]
        )
    assert list_savepoints(url, app) == []
    made = write_savepoint(url, manifests[0].id, manifests)
    assert list_savepoints(url, app) == [made]
    task_storage(url, app, 2).delete([f"manifests/{manifests[2].id}.json"])
    assert list_savepoints(url, app) == [], "not complete any more"
    path = Path(url.removeprefix("file://"), app, "savepoints", f"{made.id}.json")
    path.write_bytes(path.read_bytes().replace(made.snapshots[2].encode(), b"x"))
    assert list_savepoints(url, app) == []


def test_a_task_that_does_not_exist(cluster: Served) -> None:
    with pytest.raises(InvalidRequest):
        cluster.client().create([PARTITIONS])
