"""`BytesStore` for each kind: how composite keys map to families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain

from state_lib.errors import SerdeError
from state_lib.keys import START, START_BYTES, SUFFIX_BYTES, start_of
from state_lib.specs import StoreSpec
from state_lib.stores.interfaces import BytesStore, Changes, Engine, Entries, check_lengths
from state_lib.stores.segments import (
    check_store_name,
    is_expired_segment,
    is_live,
    segment_family,
    segment_id,
    segments_of,
)

_MAX_CACHED_STARTS = 100_000


def bytes_store(spec: StoreSpec, engine: Engine) -> BytesStore:
    """The store of that specification in the engine; its families are made when first written.

    Raises:
        ConfigurationError: a reserved name.
    """
    check_store_name(spec.name)
    return WindowBytesStore(spec, engine) if spec.is_window else KeyValueBytesStore(spec, engine)


class KeyValueBytesStore:
    """Key-value and timestamped stores: one family of the store's name; nothing expires."""

    def __init__(self, spec: StoreSpec, engine: Engine) -> None:
        self._spec = spec
        self._engine = engine

    @property
    def spec(self) -> StoreSpec:
        """What the store is."""
        return self._spec

    def families(self) -> list[str]:
        """The one family, if it exists."""
        return [self._spec.name] if self._spec.name in self._engine.families() else []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `BytesStore`."""
        return self._engine.get_many(self._spec.name, keys)

    def changes(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> dict[str, Changes]:
        """See `BytesStore`."""
        check_lengths(keys, values)
        return {self._spec.name: (keys, values)}

    def scan(self, lower: bytes | None = None, upper: bytes | None = None) -> Entries:
        """See `BytesStore`."""
        return self._engine.scan(self._spec.name, lower, upper)

    def expired_families(self, clock: int) -> list[str]:  # noqa: ARG002  the contract's argument
        """None, ever."""
        return []

    def live(self, key: bytes, clock: int) -> bool:  # noqa: ARG002  the contract's arguments
        """Always."""
        return True


class _FamilyOfStart(dict[bytes, str]):
    """From the 8 bytes of a start to its family: batches have few distinct starts."""

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec

    def __missing__(self, start: bytes) -> str:
        if len(start) != START_BYTES:
            raise SerdeError(
                f"a key of window store {self._spec.name!r} has less than {SUFFIX_BYTES} bytes",
                serde="window",
                seen=start.hex(),
            )
        if len(self) >= _MAX_CACHED_STARTS:
            self.clear()
        segment = segment_id(start_of(start), self._spec.segment_interval_ms)
        family = self[start] = segment_family(self._spec.name, segment)
        return family


class WindowBytesStore:
    """Window stores: one family per segment; keys are ``key ‖ start ‖ seqnum``."""

    def __init__(self, spec: StoreSpec, engine: Engine) -> None:
        self._spec = spec
        self._engine = engine
        self._family_of = _FamilyOfStart(spec)

    @property
    def spec(self) -> StoreSpec:
        """What the store is."""
        return self._spec

    def segments(self) -> list[int]:
        """Ids of the segments that exist, oldest first."""
        return segments_of(self._spec.name, self._engine.families())

    def families(self) -> list[str]:
        """Families of `segments`, oldest first."""
        return [segment_family(self._spec.name, segment) for segment in self.segments()]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `BytesStore`; a key shorter than its suffix raises SerdeError."""
        routed = self._route(keys)
        if len(routed) == 1:
            return self._engine.get_many(next(iter(routed)), keys)
        out: list[bytes | None] = [None] * len(keys)
        for family, rows in routed.items():
            found = self._engine.get_many(family, [keys[row] for row in rows])
            for row, value in zip(rows, found, strict=True):
                out[row] = value
        return out

    def changes(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> dict[str, Changes]:
        """See `BytesStore`; a key shorter than its suffix raises SerdeError."""
        check_lengths(keys, values)
        routed = self._route(keys)
        if len(routed) == 1:
            return {next(iter(routed)): (keys, values)}
        return {
            family: ([keys[row] for row in rows], [values[row] for row in rows])
            for family, rows in routed.items()
        }

    def _route(self, keys: Sequence[bytes]) -> dict[str, list[int]]:
        """Rows of each family, in order; with one family only, no rows are listed."""
        lookup = self._family_of
        families = [lookup[key[START]] for key in keys]
        routed: dict[str, list[int]] = {family: [] for family in dict.fromkeys(families)}
        if len(routed) > 1:
            for row, family in enumerate(families):
                routed[family].append(row)
        return routed

    @contextmanager
    def scan(
        self, lower: bytes | None = None, upper: bytes | None = None
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """See `BytesStore`. Views of all segments are taken on entry, one after another.

        Who needs them at one instant (digests) keeps writers out while entering.
        """
        with ExitStack() as stack:
            views = [
                stack.enter_context(self._engine.scan(family, lower, upper))
                for family in self.families()
            ]
            yield chain.from_iterable(views)

    def expired_families(self, clock: int) -> list[str]:
        """See `BytesStore`."""
        return [
            segment_family(self._spec.name, segment)
            for segment in self.segments()
            if is_expired_segment(segment, clock, self._spec)
        ]

    def live(self, key: bytes, clock: int) -> bool:
        """See `BytesStore`."""
        return is_live(start_of(key[START]), clock, self._spec)
