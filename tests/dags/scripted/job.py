"""A driver without Spark: joins, claims, commits markers, heeds. What it does is in a file.

``SCRIPTED`` names a folder; the file ``<app>`` in it holds a word that each start reads:

- ``run``: claims, and commits a batch every moment until it is stopped or superseded;
- ``late``: as ``run``, and does not claim before there is a file ``<app>.claims``;
- ``fail``: raises before it claims anything;
- ``refuse``: says before it claims anything that another start cannot help;
- ``deaf``: as ``run``, and heeds no request before the file says something else: a long batch;
- ``idle``: as ``run``, and commits nothing while the file says so;
- ``hang``: as ``run``, and does not end after its last words;
- ``claim and fail``: claims, commits once, raises.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import commits_topic, plan_topics
from state_lib.config import Settings
from state_lib.declaration import Aggregation, Declaration, Expression, Field, Kept, Source
from state_lib.driver.claims import write_claim
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.errors import Superseded, Unavailable
from state_lib.exits import EXIT_REFUSED, EXIT_SUPERSEDED
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.protocol.marker import Marker, now_ms
from state_lib.specs import StoreSpec

BATCH_S = 0.2
stopping = threading.Event()


def main() -> None:
    name = os.environ["SCRIPTED_APP"]
    what = word(name)
    if what == "fail":
        raise RuntimeError("raised at start, as the test wants it")
    configure_logging()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    settings = Settings.load()
    kafka = Kafka.of(settings)
    app = declared(name)
    control = Control(kafka, name, Identity.of_this_process())
    control.begin()
    presence = Presence(kafka, name, Identity.of_this_process())
    if what == "refuse":
        presence.leave("failed", "refused, as the test wants it", retry=False)
        sys.exit(EXIT_REFUSED)
    while what == "late" and not Path(os.environ["SCRIPTED"], f"{name}.claims").exists():
        time.sleep(0.1)
    ensure_topics(kafka.admin(), plan_topics(app.topology, -1), 1, 1)
    presence.join()
    epoch = write_claim(kafka, app.topology, presence.who)
    presence.streaming(epoch, "http://127.0.0.1:1/spark-of-the-test")
    sys.stdout.write(f"the script runs: {what}\n")
    try:
        follow(kafka, name, control, epoch, once=what == "claim and fail")
    except Superseded as error:
        presence.leave("superseded", error.message, retry=False)
        sys.exit(EXIT_SUPERSEDED)
    if what == "claim and fail":
        presence.leave("failed", "failed later, as the test wants it")
        raise RuntimeError("failed later, as the test wants it")
    presence.leave(*control.ending, retry=False, handover=control.handover)
    while what == "hang":
        time.sleep(1)


def declared(name: str) -> Declaration:
    """Counts lines: what a job would declare by PySpark."""
    store = StoreSpec("counts", "timestamped-key-value", key_serde="utf8", value_serde="int64")
    kept = Kept(store, "utf8", {"count": Field("count", "int64", of_rows=True)})
    lines = Source(f"{name}-lines", "text")
    return Declaration(name, 1, (Aggregation(lines, (), Expression("value"), {}, kept),))


def follow(kafka: Kafka, name: str, control: Control, epoch: int, *, once: bool) -> None:
    producer = kafka.producer()
    n = 0
    while not stopping.wait(BATCH_S):
        if word(name) != "deaf" and heeds(control, epoch):
            return
        if word(name) == "idle":
            continue
        n += 1
        now = now_ms()
        marker = Marker(
            epoch=epoch, batch_number=n, owner="script", stream_time_ms=now, written_at=now
        )
        producer.produce(commits_topic(name), marker.to_bytes(), b"marker", partition=0)
        producer.flush()
        if once:
            return


def heeds(control: Control, epoch: int) -> bool:
    """Whether it was asked to stop; nothing can be heard while Kafka is away, as by any driver."""
    try:
        return control.heed(epoch) is not None
    except Unavailable:
        return False


def word(name: str) -> str:
    return Path(os.environ["SCRIPTED"], name).read_text()


if __name__ == "__main__":
    main()
