"""Which schemas of Avro a batch does without: decided once, before any task has seen it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from state_lib.config import Settings
from state_lib.declaration import Declaration
from state_lib.driver.patience import patiently
from state_lib.driver.runs import Step
from state_lib.driver.standing import Standing
from state_lib.errors import (
    ConfigurationError,
    HoldfastError,
    RegistryAway,
    RegistryRefused,
    Unavailable,
    UnknownSchemas,
)
from state_lib.executor.plan import BatchPlan

if TYPE_CHECKING:
    from state_lib.executor.avro.registry import Schemas
    from state_lib.spark.frames import Combiner

log = structlog.get_logger(__name__)
_PAUSE_S = 0.5
_REMEMBERED = 100
"""Ids that are asked for before each batch: a request for each."""
_NO_LONGER = "a stop does not wait for it: the next driver does the batch"


class Deciding:
    """What a driver knows of the schemas of its batches.

    Args:
        app: what it runs.
        combiner: knows where its schemas are.
        settings: of the driver.
    """

    def __init__(self, app: Declaration, combiner: Combiner, settings: Settings) -> None:
        self._app, self._combiner, self._settings = app, combiner, settings
        self._unknown: dict[int, None] = {}
        self._has_answered = False

    def run(
        self,
        plan: BatchPlan,
        standing: Standing,
        put: Callable[[BatchPlan], BatchPlan],
        run: Callable[[BatchPlan], None],
        stopped: Callable[[], bool],
    ) -> None:
        """Record a batch and run it.

        If records name schemas that the registry does not know, it is asked again for a while: one
        of its replicas may lag behind the producers. Ids that stay unknown are recorded with the
        batch, which no task has seen yet, so that its repeats make dead letters of the same
        records, whatever is registered meanwhile.

        Args:
            plan: of the batch.
            standing: where tasks stand.
            put: puts a plan on record.
            run: brings one that is on record to its tasks.
            stopped: whether it is not to be waited for any more.

        Raises:
            UnknownSchemas: a task has seen it, or these ids are recorded with it already; or a
                stream is to stop for them.
            ConfigurationError: there are more of them than any registry lacks.
            RegistryAway, RegistryRefused: as `Schemas.of`; it has no schema of any topic.
            Unavailable: stopped while they were waited for; or executors do not find what is there.
        """
        plan = replace(plan, unknown=self._still_unknown())
        recorded, until = put(plan), 0.0
        while True:
            try:
                run(recorded)
            except UnknownSchemas as error:
                ids = set(error.details["ids"])
                taken = any(m.batch_number >= plan.batch_number for m in standing.markers)
                if taken or ids <= set(plan.unknown):
                    raise
                until = until or time.monotonic() + self._settings.schema_registry_wait_s
                if left := self._awaited(error, ids - set(plan.unknown), until, stopped):
                    plan = replace(plan, unknown=tuple(sorted({*plan.unknown, *left})))
                    self._check(error, plan.unknown)
                    recorded = put(plan)
                    self._remember(left)
            else:
                self._has_answered = True
                return

    def patient(self, error: HoldfastError) -> HoldfastError:
        """What is raised instead of an error: a registry that has answered well may be away.

        What stands before it answers for it: a plain 404 while it is rolled out, 401 while the
        service that knows passwords is down.
        """
        if not self._has_answered or not isinstance(error, RegistryRefused):
            return error
        return RegistryAway(f"{error.message}. It has answered well before", **error.details)

    # ------------------------------------------------------------------ inside

    @property
    def _schemas(self) -> Schemas:
        schemas = self._combiner.schemas
        if schemas is None:
            raise ConfigurationError(f"application {self._app.id!r} reads no topic in Avro")
        return schemas

    @property
    def _topics(self) -> list[str]:
        return sorted({v.source.topic for v in self._app.verbs if v.source.format == "avro"})

    def _still_unknown(self) -> tuple[int, ...]:
        """Of the ids that batches before did without: a batch that has them need not fail first."""
        try:
            left = [number for number in self._unknown if self._schemas.of(number) is None]
        except (RegistryAway, RegistryRefused):
            return ()  # executors ask again, if a record has such an id
        self._unknown = dict.fromkeys(left)
        return tuple(sorted(left))

    def _remember(self, ids: Iterable[int]) -> None:
        newest = list({**self._unknown, **dict.fromkeys(ids)})[-_REMEMBERED:]
        self._unknown = dict.fromkeys(newest)

    def _awaited(
        self, error: UnknownSchemas, ids: Iterable[int], until: float, stopped: Callable[[], bool]
    ) -> list[int]:
        """Those that stay unknown; if there are none, it is not too soon to run the batch again."""
        left = sorted(ids)
        log.warning("records of unknown schemas: they are waited for", schemas=left)
        while left := [number for number in left if self._asked(number, stopped) is None]:
            if time.monotonic() >= until:
                log.warning("records of unknown schemas", schemas=left)
                return left
            self._pause(error, stopped)
        if time.monotonic() > until + self._settings.exchange_timeout_s:
            raise Unavailable(
                f"{error.message}; the driver finds them there. Do executors ask another registry "
                "by that address?",
                **error.details,
            )
        self._pause(error, stopped)
        return []

    def _pause(self, error: UnknownSchemas, stopped: Callable[[], bool]) -> None:
        if stopped():
            raise Unavailable(f"{error.message}; {_NO_LONGER}", **error.details)
        time.sleep(_PAUSE_S)

    def _asked(self, number: int, stopped: Callable[[], bool]) -> tuple[str, ...] | None:
        def ask() -> tuple[str, ...] | None:
            try:
                return self._schemas.of(number)
            except RegistryRefused as error:
                raise self.patient(error) from error

        return patiently(ask, self._settings.exchange_timeout_s, stopped)

    def _check(self, error: UnknownSchemas, ids: Sequence[int]) -> None:
        """Raise if records with unknown ids are not to become dead letters."""
        from state_lib.executor.avro.decode import MOST_UNKNOWN, too_many  # noqa: PLC0415 - heavy

        if self._settings.schema_registry_unknown == "stop":
            raise UnknownSchemas(
                f"{error.message}, nor did it for {self._settings.schema_registry_wait_s:g} s. "
                "Register them there, or set schema_registry_unknown to 'dead-letter': the records "
                "go to the dead letters then",
                **error.details,
            )
        if len(ids) > MOST_UNKNOWN:
            raise too_many(self._topics, self._schemas.url)
        if not self._schemas.knows_any(self._topics):
            raise RegistryRefused(
                f"{error.message}; it knows no schema at all, of whatever topic: it is empty, or "
                "not the registry of their producers. See schema_registry_url",
                url=self._schemas.url,
                status=None,
            )


@contextmanager
def needed(steps: Sequence[Step], tasks: Sequence[int]) -> Iterator[None]:
    """Repeat batches.

    Raises:
        UnknownSchemas: the registry lacks schemas that they had when they were decided.
    """
    try:
        yield
    except UnknownSchemas as error:
        raise _gone(error, steps, tasks) from error


def _gone(error: UnknownSchemas, steps: Sequence[Step], tasks: Sequence[int]) -> UnknownSchemas:
    first, last = steps[0].batch, steps[-1].batch
    which = f"batch {first.batch_number} of epoch {first.epoch} was decided"
    if len(steps) > 1:
        numbers = f"{first.batch_number} to {last.batch_number}"
        which = f"batches {numbers} of epoch {last.epoch} were decided"
    return UnknownSchemas(
        f"{error.message}. They were known when {which}, which tasks {list(tasks)} have yet to "
        "repeat: bring them back under their ids (by the registry's mode IMPORT), or the registry "
        "that has them, or give them in schema_registry_fallback",
        **error.details,
    )
