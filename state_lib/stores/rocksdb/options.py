"""RocksDB's settings, as plain data with one method that renders them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import rocksdict

from state_lib.errors import ConfigurationError

_COMPRESSION: dict[str, Callable[[], rocksdict.DBCompressionType]] = {
    "none": rocksdict.DBCompressionType.none,
    "lz4": rocksdict.DBCompressionType.lz4,
    "snappy": rocksdict.DBCompressionType.snappy,
    "zstd": rocksdict.DBCompressionType.zstd,
}
_COMPACTION: dict[str, Callable[[], rocksdict.DBCompactionStyle]] = {
    "level": rocksdict.DBCompactionStyle.level,
    "universal": rocksdict.DBCompactionStyle.universal,
}


_MERGES, _FLUSHES = 16, 4
"""Threads of this process for compactions and for flushes. An engine has one of each at a time, and
must not wait for another's: its flushes for the merge of a large store, as they queue with merges;
its checkpoint for the flush of another, as it holds the GIL meanwhile (`engine`)."""


class _Shared:
    """The one block cache, the one write-buffer budget and the threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: rocksdict.Cache | None = None
        self._buffers: rocksdict.WriteBufferManager | None = None

    def get(
        self, cache_bytes: int, buffer_bytes: int
    ) -> tuple[rocksdict.Cache, rocksdict.WriteBufferManager]:
        """Both, made at first use and resized when later options differ."""
        with self._lock:
            if self._cache is None or self._buffers is None:
                self._cache = rocksdict.Cache(cache_bytes)
                self._buffers = rocksdict.WriteBufferManager(buffer_bytes, allow_stall=False)
                rocksdict.Env().set_low_priority_background_threads(_MERGES)
                rocksdict.Env().set_high_priority_background_threads(_FLUSHES)
            else:
                self._cache.set_capacity(cache_bytes)
                self._buffers.set_buffer_size(buffer_bytes)
            return self._cache, self._buffers


SHARED = _Shared()


@dataclass(frozen=True)
class RocksDBOptions:
    """Settings of a task's database. Sizes in bytes.

    Attributes:
        compression: ``none``, ``lz4``, ``snappy`` or ``zstd``.
        block_cache_bytes: of the process, shared by all engines; the last engine opened decides.
        write_budget_bytes: memtables of the process, shared likewise; passing it starts a flush.
        write_buffer_bytes: one family's memtable; when full, all families flush together.
        max_write_buffers: memtables of a family, the one being filled included.
        compaction_style: ``level`` (least space), or ``universal`` (least write amplification, as
            Kafka Streams has it: what did not change stays in its file, and a snapshot's next one
            need not upload it again).
        max_size_amplification_percent: of ``universal``: once all newer files together are larger
            than this part of the oldest one, all of a family is merged.
        target_file_size: of SST files on the first level.
        max_open_files: of one engine; a process needs tasks times this.
        direct_io: bypass the page cache for reads, flushes and compaction.
        rate_limit_bytes_per_second: of one engine's flushes and compactions; 0 is no limit.
        bloom_bits_per_key: 0 is no filter.
        background_jobs: of one engine: half of them flush.

    Raises:
        ConfigurationError: an unknown compression or compaction style.
    """

    compression: str = "lz4"
    block_cache_bytes: int = 256 << 20
    write_budget_bytes: int = 256 << 20
    write_buffer_bytes: int = 32 << 20
    max_write_buffers: int = 3
    compaction_style: str = "universal"
    max_size_amplification_percent: int = 100
    target_file_size: int = 64 << 20
    max_open_files: int = 512
    direct_io: bool = False
    rate_limit_bytes_per_second: int = 0
    bloom_bits_per_key: int = 10
    background_jobs: int = 2

    def __post_init__(self) -> None:
        for key, known in (("compression", _COMPRESSION), ("compaction_style", _COMPACTION)):
            if getattr(self, key) not in known:
                raise ConfigurationError(
                    f"rocksdb {key} is {getattr(self, key)!r}; known: {sorted(known)}",
                    setting=key,
                    seen=getattr(self, key),
                )

    def render(self) -> rocksdict.Options:
        """These settings for rocksdict: for the database and for each of its families."""
        return self._rendered

    @cached_property
    def _rendered(self) -> rocksdict.Options:
        cache, buffers = SHARED.get(self.block_cache_bytes, self.write_budget_bytes)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(cache)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        if self.bloom_bits_per_key:
            table.set_bloom_filter(self.bloom_bits_per_key, block_based=False)

        out = rocksdict.Options(raw_mode=True)
        out.create_if_missing(create_if_missing=True)
        out.set_atomic_flush(True)
        out.set_paranoid_checks(True)
        out.set_block_based_table_factory(table)
        out.set_write_buffer_manager(buffers)
        out.set_write_buffer_size(self.write_buffer_bytes)
        out.set_max_write_buffer_number(self.max_write_buffers)
        out.set_arena_block_size(64 << 10)  # small families must not charge the budget 1 MiB each
        out.set_compression_type(_COMPRESSION[self.compression]())
        out.set_compaction_style(_COMPACTION[self.compaction_style]())
        universal = rocksdict.UniversalCompactOptions()
        universal.max_size_amplification_percent = self.max_size_amplification_percent
        out.set_universal_compaction_options(universal)
        out.set_level_compaction_dynamic_level_bytes(v=self.compaction_style == "level")
        out.set_target_file_size_base(self.target_file_size)
        out.set_max_bytes_for_level_base(4 * self.target_file_size)
        out.set_max_open_files(self.max_open_files)
        out.set_max_background_jobs(self.background_jobs)
        out.set_use_direct_reads(self.direct_io)
        out.set_use_direct_io_for_flush_and_compaction(self.direct_io)
        if self.rate_limit_bytes_per_second:
            out.set_ratelimiter(self.rate_limit_bytes_per_second, 100_000, 10)
        out.set_keep_log_file_num(2)
        out.set_max_log_file_size(4 << 20)
        out.set_stats_dump_period_sec(0)
        return out
