"""An application in a session of the user's: started beside other work, stopped, started again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewTopic
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession

from state_lib import Application
from state_lib.changelog.admin import _await
from state_lib.changelog.topics import TopicPlan, changelog_topic
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.errors import ConfigurationError, HoldfastError, Superseded, Unavailable
from state_lib.kafka import Kafka
from state_lib.spark import handle
from state_lib.spark.streaming import Streaming
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.support import processors
from tests.support.apps import App
from tests.support.documents import written
from tests.support.environment import set_environment
from tests.support.fold import committed
from tests.support.hosts import address, served
from tests.support.spark import spark_session
from tests.support.waiting import SLOWNESS, until

PARTITIONS = 2
SOON_S = 60.0
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    """Workers need not find the module: it is pickled whole, as a job's own file is."""
    cloudpickle.register_pickle_by_value(processors)
    yield
    cloudpickle.unregister_pickle_by_value(processors)


@pytest.fixture
def given() -> Iterator[SparkSession]:
    """The user's, with settings of its own."""
    with spark_session("tests") as session:
        for key, value in {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.session.timeZone": "America/New_York",
        }.items():
            session.conf.set(key, value)
        yield session


class World:
    """A topic, an application that counts its lines, and a host that can be taken away."""

    def __init__(self, kafka: Kafka, name: str, root: Path) -> None:
        self.kafka, self.name, self.root = kafka, name, root
        self.lines, self.at = f"{name}-lines", address()
        kafka.admin().create_topics([NewTopic(self.lines, PARTITIONS, 1)])[self.lines].result()
        _await(kafka.admin(), [TopicPlan(self.lines, PARTITIONS)])
        self._producer = kafka.producer()
        self._stack = ExitStack()
        self._host: Any = None

    def declared(self, session: SparkSession) -> Application:
        app = Application(self.name, session, partitions=PARTITIONS)
        app.stream(self.lines, format="text").groupBy("value").count("counts")
        return app

    def serve(self, app: Application) -> None:
        made = App(self.kafka, app.topology, self.root)
        made.create()
        self._host = self._stack.enter_context(served(made, self.at))

    def write(self, *lines: str) -> None:
        for line in lines:
            self._producer.produce(self.lines, line.encode(), b"", partition=len(line) % PARTITIONS)
        assert self._producer.flush(10) == 0

    def counts(self) -> dict[bytes, int]:
        found: dict[bytes, bytes] = {}
        with contextlib.suppress(HoldfastError):  # it is not open yet
            for p in range(PARTITIONS):
                found |= dict(self._host.task(self.name, p).scan("counts")[1])
        return {key: int.from_bytes(value[-8:], "big") for key, value in found.items()}

    def held(self, store: str) -> dict[bytes, bytes]:
        """What all tasks have in a store."""
        tasks = [self._host.task(self.name, p) for p in range(PARTITIONS)]
        return {key: value for task in tasks for key, value in task.scan(store)[1]}

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of a topic."""
        brokers = str(self.kafka.properties["bootstrap.servers"])
        found = [m for p in range(PARTITIONS) for m in committed(brokers, topic, p)]
        return [(message.key(), message.value()) for message in found]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def world(
    broker: LocalBroker, kafka: Kafka, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    made = World(kafka, name, tmp_path / "host")
    settings = Settings.load(
        home=tmp_path / "home",
        bootstrap_servers=broker.bootstrap,
        replication_factor=1,
        hosts=str(made.at),
        exchange_timeout_s=120,
        stop_timeout_s=2,
        spark_ui_port=free_port(),
    )
    set_environment(monkeypatch, settings)
    # It would be that of all tests after these.
    monkeypatch.setattr(handle, "configure_logging", lambda *_: None)
    yield made
    made.close()


def counted(world: World, **expected: int) -> Callable[[], bool]:
    wanted = {key.encode(): n for key, n in expected.items()}
    return lambda: world.counts() == wanted


def test_it_runs_beside_the_program_and_again(world: World, given: SparkSession) -> None:
    app = world.declared(given)
    world.serve(app)
    query = app.start()
    assert (query.isActive, query.name, query.exception()) == (True, world.name, None)
    world.write("a", "bb", "a")
    until(counted(world, a=2, bb=1), SOON_S, "counted")
    until(lambda: query.lastProgress, SOON_S, "progress")
    assert query.recentProgress
    assert query.awaitTermination(0.1) is False
    with pytest.raises(ConfigurationError, match="runs already in this process"):
        world.declared(given).start()
    query.stop()
    query.stop()
    assert (query.isActive, query.awaitTermination(), query.exception()) == (False, None, None)

    assert given.range(3).count() == 3, "it is the user's to stop"
    assert given.conf.get("spark.sql.ansi.enabled") == "false"
    assert not given.streams.active
    again = world.declared(given).start()
    world.write("a")
    until(counted(world, a=3, bb=1), SOON_S, "counted")
    again.stop()


@pytest.mark.usefixtures("given")
def test_the_page_about_sessions(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Its code, with this test's names and a shorter wait."""
    (block,) = (b for b in written()["docs/how-to/sessions.md"].blocks if b.language == "python")
    text = block.text
    for words, ours in {
        '"word_count"': f'"{world.name}"',
        '"lines"': f'"{world.lines}"',
        '"word-counts"': f'"{world.name}-out"',
        "partitions=4": f"partitions={PARTITIONS}",
        "awaitTermination(60)": "awaitTermination(1)",
    }.items():
        assert words in text
        text = text.replace(words, ours)
    declares, starts, rest = text.partition("query = app.start()\n")
    there: dict[str, Any] = {}
    exec(compile(declares, block.title, "exec"), there)  # noqa: S102 - it is ours
    world.serve(there["app"])
    world.write("to be", "or not to be")
    exec(compile(starts, block.title, "exec"), there)  # noqa: S102
    until(counted(world, to=2, be=2, **{"or": 1, "not": 1}), SOON_S, "counted")
    exec(compile(rest, block.title, "exec"), there)  # noqa: S102
    assert "\nTrue {" in f"\n{capsys.readouterr().out}"
    assert not there["query"].isActive
    assert there["spark"].range(3).count() == 3


def test_a_stopped_session_under_it_is_told(world: World, given: SparkSession) -> None:
    app = world.declared(given)
    world.serve(app)
    query = app.start()
    world.write("a")
    until(counted(world, a=1), SOON_S, "counted")
    given.stop()
    with pytest.raises(Unavailable, match=f"{world.name}.*was given has been stopped"):
        query.awaitTermination(SOON_S * SLOWNESS)
    assert not query.isActive
    assert isinstance(query.exception(), Unavailable)
    assert query.lastProgress is None or query.lastProgress
    with pytest.raises(Unavailable, match="has been stopped"):
        app.start()
    with pytest.raises(ConfigurationError, match="has been stopped"):
        Application(world.name, given)


def test_a_failure_starts_the_query_again_in_the_same_session(
    world: World, given: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[SparkSession] = []
    run = Streaming.run

    def once(self: Streaming, asked: Callable[[], bool]) -> None:
        sessions.append(self._spark)
        if len(sessions) == 1:
            raise Unavailable("once")
        run(self, asked)

    monkeypatch.setattr(Streaming, "run", once)
    app = world.declared(given)
    world.serve(app)
    query = app.start()
    world.write("a")
    until(counted(world, a=1), SOON_S, "counted")
    query.stop()
    assert len(sessions) == 2
    assert sessions[0] is sessions[1]


def test_a_newer_driver_ends_it(world: World, given: SparkSession) -> None:
    app = world.declared(given)
    world.serve(app)
    query = app.start()
    world.write("a")
    until(counted(world, a=1), SOON_S, "counted")
    write_claim(world.kafka, app.topology)
    with pytest.raises(Superseded):
        query.awaitTermination(SOON_S * SLOWNESS)


def test_a_batch_that_is_cancelled_takes_no_job_of_the_users_with_it(
    world: World, given: SparkSession
) -> None:
    app = world.declared(given)
    world.serve(app)
    query = app.start()
    world.write("a")
    until(counted(world, a=1), SOON_S, "counted")
    world.close()  # a batch that begins now waits for the host
    world.write("b")
    time.sleep(3)
    done: list[int] = []

    def slowly(number: int) -> int:
        time.sleep(1)
        return number

    def work() -> None:
        numbers = given.sparkContext.parallelize(range(3), 3)
        done.append(numbers.map(slowly).count())

    beside = threading.Thread(target=work)
    beside.start()
    query.stop()
    beside.join(SOON_S * SLOWNESS)
    assert done == [3]
    assert not query.isActive


def test_timers_and_times_to_live_end_with_no_rows_to_come(
    world: World, given: SparkSession
) -> None:
    """The driver looks every second; one line is all that is ever written."""

    def on_rows(self: Any, _: Any, __: Any, times: Any) -> Any:
        self.seen.update((times.getCurrentProcessingTimeInMs(),))
        self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 1000)
        return iter(())

    def on_timer(_: Any, key: Any, __: Any, ___: Any) -> Any:
        yield Row(k=key[0])

    asked = {"seen": lambda handle, name: handle.getValueState(name, "at BIGINT", 2000)}
    app = Application(world.name, given, partitions=PARTITIONS)
    lines = app.stream(world.lines, format="text").groupBy("value")
    told = lines.transformWithState(
        processors.Doing(asked, on_rows, on_timer), "k STRING", "Append", "ProcessingTime", name="p"
    )
    told.to(f"{world.name}-told")
    world.serve(app)
    query = app.start()
    world.write("a")
    until(lambda: world.records(f"{world.name}-told"), SOON_S, "told by its timer")
    seen = changelog_topic(world.name, "p-seen")
    until(lambda: len(world.records(seen)) == 2, SOON_S, "at the end of its time to live")
    until(lambda: not world.held("p-seen") | world.held("p-timers"), SOON_S, "gone from its host")
    query.stop()
    ((key, said),) = world.records(f"{world.name}-told")
    assert (key, orjson.loads(said or b"")) == (b"a", {"k": "a"})
    (_, put), (_, removed) = world.records(seen)
    assert put is not None
    assert removed is None


def test_a_session_that_cannot_run_a_stream_is_refused_at_its_start(world: World) -> None:
    with spark_session("tests", spark_master="local[2]") as given:
        app = world.declared(given)
        with pytest.raises(ConfigurationError, match=r"'local\[2\]' and must be 'local\[2,4\]'"):
            app.start()


def test_an_application_without_a_session_leaves_the_one_that_is_there(
    world: World, given: SparkSession
) -> None:
    app = Application(world.name, partitions=PARTITIONS)
    app.stream(world.lines, format="text").groupBy("value").count("counts")
    assert given.conf.get("spark.sql.adaptive.enabled") == "true"
    world.serve(app)
    query = app.start()
    world.write("a")
    until(counted(world, a=1), SOON_S, "counted")
    query.stop()
    assert given.range(3).count() == 3


def test_run_is_for_the_main_thread(world: World, given: SparkSession) -> None:
    failed: list[Exception] = []

    def run() -> None:
        try:
            world.declared(given).run()
        except ConfigurationError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SOON_S * SLOWNESS)
    assert "call start()" in str(failed[0])
