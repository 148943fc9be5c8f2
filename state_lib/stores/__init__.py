"""State stores: engines (rocksdb, memory) below, typed read-only and writable views above."""

from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.digest import StoreDigest, digest, store_digest
from state_lib.stores.interfaces import (
    BytesStore,
    Changes,
    Engine,
    KeyValueStore,
    ReadOnlyKeyValueStore,
    ReadOnlyWindowStore,
    ValueAndTimestamp,
    Windowed,
    WindowStore,
)
from state_lib.stores.keyvalue import key_value_store, read_only_key_value_store
from state_lib.stores.segments import META_FAMILY
from state_lib.stores.window import read_only_window_store, window_store

__all__ = [
    "META_FAMILY",
    "BytesStore",
    "Changes",
    "Engine",
    "KeyValueStore",
    "ReadOnlyKeyValueStore",
    "ReadOnlyWindowStore",
    "StoreDigest",
    "ValueAndTimestamp",
    "WindowStore",
    "Windowed",
    "bytes_store",
    "digest",
    "key_value_store",
    "read_only_key_value_store",
    "read_only_window_store",
    "store_digest",
    "window_store",
]
