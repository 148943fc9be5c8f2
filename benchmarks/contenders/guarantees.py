"""What each contender promises about its counts: a rate without it says little."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.contenders.spark_alone import GROUP, PYTHON, TRANSFORM
from benchmarks.measure import HOLDFAST, PEER

TUNED, SPARK_TRANSFORM, SPARK_GROUP = f"{PEER}, tuned", f"spark {TRANSFORM}", f"spark {GROUP}"
SPARK_PYTHON = f"spark {PYTHON}"
_STREAMS = (
    "exactly once (v2): state and source offsets in one Kafka transaction; the state is as safe as "
    "Kafka's replicas, and a disk may be lost"
)
_SPARK = (
    "state exactly once, by a checkpoint in a folder (here the local disk; its loss is the loss of "
    "the state) with changelog checkpointing; counts at least once in Kafka: a batch that is "
    "repeated writes its counts again, and readers see those of unfinished batches"
)
GUARANTEES: Mapping[str, str] = {
    HOLDFAST: (
        "exactly once: state and source positions in one Kafka transaction a task and batch; the "
        "state is as safe as Kafka's replicas, and a disk may be lost"
    ),
    PEER: _STREAMS,
    TUNED: _STREAMS,
    SPARK_TRANSFORM: f"{_SPARK}; its processor is Java, and drops no window",
    SPARK_PYTHON: f"{_SPARK}; its processor is the one that Holdfast runs",
    SPARK_GROUP: f"{_SPARK}; drops no window",
}
