"""Makes the class archive of Spark's JVM: ``python -m state_lib.spark.training``.

A driver is run as it will be run, on the job `state_lib.spark.exercise`, with a broker and a host
of its own in a temporary folder, until it has committed two batches: what its JVM has loaded by
then is what drivers load. ``make setup`` does it, and ``holdfast up`` where it was not done.

Ends with 1 where no archive could be made. Nothing depends on it. Who starts it by itself does not
try that again; by hand it is always tried.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from state_lib.config import PREFIX, Settings
from state_lib.errors import HoldfastError, Unavailable
from state_lib.kafka import Kafka, answer
from state_lib.processes import end
from state_lib.spark import exercise
from state_lib.spark.training_place import alone, place, unwinding
from state_lib.stack import class_archive, jars, java
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port

RECORDS = 4_000
FIRST = 1_000
BATCHES = 2
WITHIN_S = 240.0
LOOK_S = 0.1
FAILURES = (HoldfastError, KafkaException, OSError, psutil.Error)
NICE = 10
"""Whoever waits for the stack, or works with it, comes first."""
_FITTING = re.compile(
    r"-Xm[nsx]\S+|-XX:\+Use\w*GC|-XX:[+-]UseCompressed\w+|-XX:ObjectAlignmentInBytes=\d+"
    r"|-XX:\+Unlock\w+VMOptions"
)
"""Those of a user's options for the JVM that an archive must fit: others open ports, write logs."""


def main() -> int:
    """Make the archive unless it is there, or is being made; returns the exit code."""
    try:
        with unwinding():
            settings = Settings.load()
            home, spark = java.java_home(), jars.fetch("spark", directory=settings.jars_dir)
            os.nice(NICE)
            with alone() as mine:
                if mine and class_archive.find(home, spark) is None:
                    _keep(settings, home, spark)
    except FAILURES as error:
        sys.stderr.write(f"no class archive was made, drivers start without: {error}\n")
        return 1
    return 0


def _keep(settings: Settings, home: Path, spark: tuple[Path, ...]) -> None:
    made = class_archive.folder() / f".making-{os.getpid()}.jsa"
    try:
        train(settings, made)
        class_archive.keep(made, home, spark)
    except FAILURES as error:
        class_archive.note_failure(home, spark, str(error))
        raise
    finally:
        made.unlink(missing_ok=True)


def train(settings: Settings, made: Path) -> None:
    """Run the exercise; the driver's JVM leaves ``made`` as it ends.

    Raises:
        Unavailable: it did not come to its second batch, or the JVM left nothing.
    """
    with place() as folder, LocalBroker(folder / "kafka") as broker:
        _load(Kafka({"bootstrap.servers": broker.bootstrap}))
        environment = _environment(settings, folder, broker.bootstrap, made)
        log = folder / "driver.log"
        with _running(["state_lib.host", "--id", "host-1"], environment, folder / "host.log"):
            with _running(["state_lib.spark.exercise"], environment, log) as driver:
                _await_batches(driver, log)
                jvms = driver.children(recursive=True)
                driver.terminate()
                _, alive = psutil.wait_procs([driver, *jvms], WITHIN_S)  # it writes as it ends
            end(alive, signal.SIGKILL, WITHIN_S)
        if alive or not made.is_file():
            raise Unavailable(f"Spark's JVM left no archive; the driver said:\n{_tail(log)}")


def _load(kafka: Kafka) -> None:
    admin = kafka.admin()
    topics = [NewTopic(t, exercise.PARTITIONS, 1) for t in exercise.SOURCES]
    for future in admin.create_topics(topics).values():
        answer(admin, future)
    producer = kafka.producer("training")
    for topic, key, value in exercise.records(range(RECORDS)):
        producer.produce(topic, value, key)
        producer.poll(0)
    producer.flush(60)


def _environment(settings: Settings, folder: Path, bootstrap: str, made: Path) -> dict[str, str]:
    """Of what the user has set: what the JVM is, and where its jars are. The rest is our own."""
    fitting = (x for x in settings.driver_java_options.split() if _FITTING.fullmatch(x))
    given = {
        "home": folder / "home",
        "jars_dir": settings.jars_dir,
        "driver_memory": settings.driver_memory,
        "driver_java_options": " ".join((*fitting, *class_archive.making(made))),
        "first_offsets_per_trigger": FIRST,
        "bootstrap_servers": bootstrap,
        "hosts": f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        "replication_factor": 1,
        "max_restarts": 1,
        "spark_ui_port": free_port(),
    }
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    others = {name: value for name, value in os.environ.items() if name not in names}
    own = {PREFIX + name.upper(): str(x) for name, x in given.items() if x is not None}
    return {**others, **own}


@contextlib.contextmanager
def _running(module: list[str], environment: dict[str, str], log: Path) -> Iterator[psutil.Popen]:
    """A Python process, in a folder without files of the user's, and what it starts."""
    with log.open("wb") as out:
        process = psutil.Popen(
            [sys.executable, "-m", *module],
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            end([process, *process.children(recursive=True)], signal.SIGKILL, WITHIN_S)


def _await_batches(driver: psutil.Popen, log: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while log.read_text(errors="replace").count('"event": "batch"') < BATCHES:
        if driver.poll() is not None or time.monotonic() > deadline:
            raise Unavailable(f"the driver came to no second batch; it said:\n{_tail(log)}")
        time.sleep(LOOK_S)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


if __name__ == "__main__":
    sys.exit(main())
