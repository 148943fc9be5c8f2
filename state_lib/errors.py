"""Every error that Holdfast raises on purpose, under one root.

::

    HoldfastError
    ├── ConfigurationError          fix a setting or a topic, then start again
    │   ├── InvalidName             a name that could become a path or an illegal topic
    │   ├── NoSuchVerb              a job asks a stream for a verb or column that it has not
    │   ├── ChangelogUnsafe         a topic that cannot protect its store
    │   ├── MissingTopic            a source or changelog that does not exist
    │   ├── TopicRecreated          same name, another topic id: offsets mean nothing
    │   ├── LogLost                 an internal topic was deleted, cut or created again
    │   ├── NotRepairable           a lost topic that cannot be rewritten from what a host has
    │   ├── CodeChanged             other code left a batch half done
    │   ├── Misplaced               Spark brought rows to another task than theirs
    │   ├── Unjudged                Spark read a row that no recorded batch of a run has
    │   ├── TooLarge                a record that its topic does not take
    │   ├── ProcessorFailed         a stateful processor raised, and is to stop the stream then
    │   ├── KafkaRefused            brokers do not let us in, or forbid what we ask
    │   ├── RegistryRefused         the Schema Registry does not let us in, or is none
    │   ├── UnknownSchemas          the Schema Registry does not know ids of schemas
    │   └── PortInUse
    ├── CommitRefused               the commit protocol said no; carries both sides' numbers
    │   ├── Realign                 `from` is not where the task stands
    │   │   └── Moved               the marker moved since the values were read: read again
    │   ├── Superseded              a newer driver has claimed the application
    │   └── NotOwner                this host is not, or no longer, the task's owner
    ├── Unavailable                 try again shortly: opening, restoring, disk full
    │   ├── StorageUnavailable      snapshot storage is away, full or read-only; names its URL
    │   ├── RegistryAway            the Schema Registry does not answer; names its URL
    │   ├── Busy                    a restore of the task is running already
    │   └── Quarantined             its local state is lost: somebody must ask for a restore
    ├── ProcessorUnready            a stateful processor could not begin, or is slow: tried again
    ├── WorkerLost                  a Python worker of Spark's has ended, and with it a batch
    ├── StateCorrupt                local state that must be set aside and rebuilt
    ├── SnapshotInvalid             a snapshot that is not whole, or not what was asked for
    ├── StoreFull                   a memory store has reached its byte bound
    ├── SerdeError                  bytes that are not what the serde expects
    ├── NotFound                    unknown application, store or task
    ├── InvalidRequest              a query or an exchange that makes no sense
    │   └── PlanStale               an old plan: running it now would do something else
    └── Unauthorized                no token, or a wrong one

Errors cross the wire as ``{"code", "message", "details"}`` (`to_wire`, `from_wire`), so that a
caller in another process catches the same class that was raised.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """The root. ``details`` holds the values that the message names, as JSON-able data."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_wire(self) -> dict[str, Any]:
        """Render for HTTP bodies and Flight's extra info."""
        return {"code": self.code, "message": self.message, "details": self.details}

    def __reduce__(self) -> tuple[Any, ...]:
        return from_wire, (self.to_wire(),)


class ConfigurationError(HoldfastError):
    """A setting or a topic is wrong; starting again without a change will fail again."""

    code = "configuration"
    http_status = 400


class InvalidName(ConfigurationError):
    """A name with characters that Kafka topics or file names must not have."""

    code = "invalid-name"


class NoSuchVerb(ConfigurationError, AttributeError):
    """A job asks a stream for a verb or a column that it has not. Details: name."""

    code = "no-such-verb"


class ChangelogUnsafe(ConfigurationError):
    """A topic's configuration would lose state. Details: topic, key, seen, needed."""

    code = "changelog-unsafe"


class MissingTopic(ConfigurationError):
    """A topic that must exist does not. Details: topic."""

    code = "missing-topic"
    http_status = 404


class TopicRecreated(ConfigurationError):
    """The topic was deleted, and maybe created again. Details: topic, expected_id, actual_id.

    Of the topology topic also the epoch that cannot claim, if there is one, and the current one
    that tasks stand at.
    """

    code = "topic-recreated"


class LogLost(ConfigurationError):
    """An internal topic does not hold what was committed any more. Details: task, topic."""

    code = "log-lost"
    http_status = 503  # not 4xx: the task is closed, which is not the client's fault


class NotRepairable(ConfigurationError):
    """A lost topic cannot be rewritten from what this host has. Details: task, why."""

    code = "not-repairable"


class CodeChanged(ConfigurationError):
    """Other code left a batch half done. Details: app, theirs, ours, epoch, batch_number, tasks."""

    code = "code-changed"


class Misplaced(ConfigurationError):
    """Rows of other tasks came to this one. Details: task, seen."""

    code = "misplaced"


class Unjudged(ConfigurationError):
    """A row is in none of the batches that are repeated together.

    Details: topic, partition, offset, epoch, batches, recorded.
    """

    code = "unjudged"


class TooLarge(ConfigurationError):
    """A record is larger than its topic takes. Details: topic, size, limit (bytes)."""

    code = "too-large"


class ProcessorFailed(ConfigurationError):
    """A stateful processor raised. Details: processor, key, method."""

    code = "processor-failed"


class ProcessorUnready(HoldfastError):
    """A stateful processor cannot be made or closed, or takes too long; another try may help.

    Details: processor, task.
    """

    code = "processor-unready"


class WorkerLost(HoldfastError):
    """A Python worker ended while it ran a batch, each time that Spark tried. Details: app."""

    code = "worker-lost"


class KafkaRefused(ConfigurationError):
    """Log-in, certificate or access right. Details: principal, resource, kafka_error."""

    code = "kafka-refused"
    http_status = 502


class RegistryRefused(ConfigurationError):
    """Log-in, certificate, or no Schema Registry at all. Details: url, status."""

    code = "registry-refused"
    http_status = 502


class UnknownSchemas(ConfigurationError):
    """Records have ids of schemas that the Schema Registry does not know. Details: url, ids.

    Within a batch of a stream that is no failure: the batch is judged again, and says so.
    """

    code = "unknown-schemas"


class PortInUse(ConfigurationError):
    """Another process listens where ours should. Details: port, setting."""

    code = "port-in-use"


class CommitRefused(HoldfastError):
    """The commit protocol refused. Details carry both sides' epoch, n and positions."""

    code = "commit-refused"
    http_status = 409


class Realign(CommitRefused):
    """The commit's ``from`` is not the task's positions, or the marker moved since the read."""

    code = "realign"


class Moved(Realign):
    """The marker moved between two reads of one exchange: doing the exchange again is right."""

    code = "moved"


class Superseded(CommitRefused):
    """A driver with a higher epoch has claimed the application: exit, do not restart."""

    code = "superseded"


class NotOwner(CommitRefused):
    """This host does not own the task. Details: task, owner."""

    code = "not-owner"


class Unavailable(HoldfastError):
    """The task cannot answer now (opening, restoring, disk full); retrying is right."""

    code = "unavailable"
    http_status = 503


class StorageUnavailable(Unavailable):
    """Snapshot storage cannot be read or written now. Details: url, action, reason."""

    code = "storage-unavailable"


class RegistryAway(Unavailable):
    """The Schema Registry does not answer now. Details: url, reason."""

    code = "registry-away"


class SnapshotInvalid(HoldfastError):
    """A snapshot that cannot be used: torn, changed, of another task or a newer format."""

    code = "snapshot-invalid"
    http_status = 409


class Busy(Unavailable):
    """Another restore of this task runs, here or in another process. Details: task, process."""

    code = "busy"
    http_status = 409


class Quarantined(Unavailable):
    """The task's local state is lost and waits for a restore. Details: task, reason, source."""

    code = "quarantined"


class StateCorrupt(HoldfastError):
    """Local state that cannot be trusted. It is set aside and rebuilt, never deleted first."""

    code = "state-corrupt"


class StoreFull(HoldfastError):
    """A memory store would pass its bound. Details: store, max_bytes, needed_bytes."""

    code = "store-full"
    http_status = 507


class SerdeError(HoldfastError):
    """Bytes or values that the serde cannot convert. Details: serde, seen."""

    code = "serde"
    http_status = 400


class NotFound(HoldfastError):
    """Unknown application, store or task. Details name it and list what exists."""

    code = "not-found"
    http_status = 404


class InvalidRequest(HoldfastError):
    """A request that cannot be carried out as written."""

    code = "invalid-request"
    http_status = 400


class PlanStale(InvalidRequest):
    """A plan that would do something else now than when it was made. Details: task, plan, why."""

    code = "plan-stale"
    http_status = 409


class Unauthorized(HoldfastError):
    """No token, or not the configured one."""

    code = "unauthorized"
    http_status = 401


def _tree(cls: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    found = {cls.code: cls}
    for child in cls.__subclasses__():
        found |= _tree(child)
    return found


def from_wire(body: dict[str, Any]) -> HoldfastError:
    """Rebuild the error that `to_wire` rendered; an unknown code becomes the root class."""
    cls = _tree(HoldfastError).get(str(body.get("code")), HoldfastError)
    error = cls(str(body.get("message", body)))
    error.details = dict(body.get("details") or {})
    return error
