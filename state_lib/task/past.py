"""The first half of a restore to the past, up to the marker after which it must be finished.

Before that marker nothing is changed; after it, any opening of the task finishes the restore
(`state_lib.task.rewriting`). So everything that could fail for good is checked first: the stores,
the snapshot, which is fetched and verified, and, by the caller, the source records to read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from state_lib.changelog.writer import OutcomeUnknown
from state_lib.errors import InvalidRequest, Unavailable
from state_lib.failpoints import failpoint
from state_lib.protocol.marker import RESTORING, Marker, Verdict, now_ms
from state_lib.restore.facts import free_bytes
from state_lib.restore.past import PastPlan, plan_past
from state_lib.task.claiming import judge_claim
from state_lib.task.opening import Opening, write_marker

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Past:
    """A requested restore to the past.

    Attributes:
        snapshot: id of a snapshot of the task.
        republish: whether to write outputs again that were written already.
        epoch: of the restore; higher than that of any earlier driver, lower than of any later one.
        topic_id: of the topology topic that the epoch is an offset of.
        by: who asks, for people.
    """

    snapshot: str
    republish: bool
    epoch: int
    topic_id: str
    by: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Past:
        """From plain data. Raises InvalidRequest if it makes no sense."""
        try:
            return cls(
                snapshot=str(data["snapshot"]),
                republish=bool(data["republish"]),
                epoch=int(data["epoch"]),
                topic_id=str(data["topic_id"]),
                by=str(data.get("by", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"not a request to go back in time: {data!r}") from error

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def is_begun(self, marker: Marker) -> bool:
        """Whether the task is restoring to that snapshot already, by this or an earlier request."""
        asked = (marker.back.get("snapshot"), marker.back.get("republish"))
        return marker.state == RESTORING and asked == (self.snapshot, self.republish)


def plan(opening: Opening, snapshot: str, *, republish: bool, newest: Marker) -> PastPlan:
    """See `plan_past`. Raises InvalidRequest also if the host has no storage."""
    found = plan_past(
        opening.topology,
        opening.partition,
        newest,
        storage_of(opening),
        snapshot,
        republish=republish,
    )
    return replace(found, free_bytes=free_bytes(opening.path))


def begin(opening: Opening, past: Past, newest: Marker, close: Callable[[], None]) -> bool:
    """Check, fetch, close the task, and write the marker that names the snapshot to go back to.

    Args:
        opening: of the task; nobody else opens it meanwhile.
        past: the request.
        newest: marker of the task.
        close: closes the task: from then on neither queries nor drivers reach it.

    Returns:
        Whether the task has to be opened to finish it; False if this request was done already.

    Raises:
        Superseded: a driver has claimed the task since the epoch was taken.
        TopicRecreated, InvalidRequest, NotFound, SnapshotInvalid: nothing was changed.
        Unavailable: Kafka, the storage or the disk is away; it may have begun.
    """
    if past.is_begun(newest):
        return True
    verdict = judge_claim(opening.name, newest, past.epoch, past.topic_id)
    if verdict is Verdict.ALREADY_DONE and newest.rewound == past.epoch:
        return False
    wanted = plan(opening, past.snapshot, republish=past.republish, newest=newest)
    log.info("going back in time", task=opening.name, snapshot=past.snapshot, by=past.by)
    opening.rewriting().bring(past.snapshot)
    close()
    writer = opening.writer()
    try:
        writer.open()
        fenced = opening.newest_marker()
        judge_claim(opening.name, fenced, past.epoch, past.topic_id)
        if fenced.published_to != newest.published_to:  # later commits have to be read again, too
            wanted = plan(opening, past.snapshot, republish=past.republish, newest=fenced)
        failpoint("past.before_begin")
        marker = _begun(fenced, past, wanted, opening.context.host_id)
        write_marker(writer, opening.topology, opening.partition, marker)
        failpoint("past.after_begin")
    except OutcomeUnknown as error:
        raise Unavailable(error.message, task=opening.name) from error
    finally:
        writer.close()
    return True


def storage_of(opening: Opening) -> str:
    """Where snapshots are. Raises InvalidRequest if this host has none."""
    url = opening.context.restore.snapshots_url
    if url is None:
        raise InvalidRequest(
            f"host {opening.context.host_id!r} knows no storage of snapshots: set "
            "HOLDFAST_SNAPSHOTS_URL for it, then ask again",
            task=opening.name,
        )
    return url


def _begun(newest: Marker, past: Past, wanted: PastPlan, host: str) -> Marker:
    back = {
        "snapshot": past.snapshot,
        "republish": past.republish,
        "by": past.by,
        "at": now_ms(),
        "before": newest.claim,
        "from": [wanted.from_epoch, wanted.from_batch_number],
    }
    published = {"positions": newest.published_to.to_json(), "clock": newest.stream_time_ms}
    published |= newest.outputs_recorded
    if past.republish:
        published["again"] = True
    begun = newest.claimed_by(past.epoch, host, past.topic_id)
    return replace(begun, state=RESTORING, back=back, published=published)
