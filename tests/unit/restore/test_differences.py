"""What has to be written so that a store is again as it was, against a dict as the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from state_lib.keys import window_key
from state_lib.restore.differences import differences, forgotten
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.memory.engine import MemoryEngine
from tests.support.apps import HOUR, KV, NOON, WIN

_ENTRIES = st.dictionaries(st.binary(max_size=3), st.binary(max_size=2), max_size=12)
_WINDOWS = st.dictionaries(
    st.tuples(st.sampled_from([b"", b"a", b"ab", b"b"]), st.integers(-9, 9)),
    st.binary(max_size=1),
    max_size=20,
)
_HOURS = st.integers(-6, 10)


def store_of(spec: StoreSpec, entries: Mapping[bytes, bytes]) -> BytesStore:
    engine = MemoryEngine(Path("nowhere"))
    store = bytes_store(spec, engine)
    if entries:
        engine.write(store.changes(list(entries), list(entries.values())))
    return store


@given(_ENTRIES, _ENTRIES)
def test_a_key_value_store_becomes_what_it_was(
    now: dict[bytes, bytes], then: dict[bytes, bytes]
) -> None:
    found = dict(differences(store_of(KV, now), store_of(KV, then), 0, 0))
    after = {k: v for k, v in (now | found).items() if v is not None}
    assert after == then
    assert len(found) == sum(now.get(k) != then.get(k) for k in now | then), "no more than differs"


@given(_WINDOWS, _WINDOWS, _HOURS, _HOURS, st.data())
def test_a_window_store_becomes_what_it_was_on_any_replica(
    now: dict[tuple[bytes, int], bytes],
    then: dict[tuple[bytes, int], bytes],
    clock: int,
    back: int,
    data: st.DataObject,
) -> None:
    """One that has dropped any of what is expired now, and never one that holds more than here."""

    def of(entries: dict[tuple[bytes, int], bytes]) -> dict[bytes, bytes]:
        return {window_key(k, NOON + h * HOUR): v for (k, h), v in entries.items()}

    at, to = NOON + clock * HOUR, NOON + back * HOUR
    here, there = of(now), of(then)
    live, past = store_of(WIN, here), store_of(WIN, there)
    found = dict(differences(live, past, at, to))
    replica = {k: v for k, v in here.items() if live.live(k, at) or data.draw(st.booleans())}
    after = {k: v for k, v in (replica | found).items() if v is not None and live.live(k, to)}
    assert after == {k: v for k, v in there.items() if past.live(k, to)}


def test_what_only_the_log_may_know() -> None:
    wanted = forgotten(store_of(WIN, {}), NOON + 6 * HOUR, NOON)
    hours = [h for h in range(-6, 8) if wanted(window_key(b"k", NOON + h * HOUR))]
    assert hours == [-3, -2, -1, 0, 1, 2], "live then, expired now"
