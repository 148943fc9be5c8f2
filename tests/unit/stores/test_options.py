from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state_lib.errors import ConfigurationError
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
from state_lib.stores.rocksdb.options import SHARED


@pytest.mark.parametrize(
    ("setting", "value"), [("compression", "lzma"), ("compaction_style", "fifo")]
)
def test_unknown_settings_name_what_is_known(setting: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting} is '{value}'; known: "):
        RocksDBOptions(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"compression": "zstd"}, "compression=kZSTD"),
        ({}, "compaction_style=kCompactionStyleUniversal"),
        ({"compaction_style": "level"}, "compaction_style=kCompactionStyleLevel"),
        ({"write_buffer_bytes": 1 << 20}, "write_buffer_size=1048576"),
        ({"max_write_buffers": 5}, "max_write_buffer_number=5"),
        ({"target_file_size": 1 << 21}, "target_file_size_base=2097152"),
        ({"max_open_files": 77}, "max_open_files=77"),
        ({"direct_io": True}, "use_direct_reads=true"),
        ({"bloom_bits_per_key": 3}, "filter_policy=bloomfilter"),
        ({"bloom_bits_per_key": 0}, "filter_policy=nullptr"),
        ({"background_jobs": 3}, "max_background_jobs=3"),
        ({}, "atomic_flush=true"),
        ({"max_size_amplification_percent": 50}, "max_size_amplification_percent=50;"),
    ],
)
def test_each_setting_reaches_rocksdb(tmp_path: Path, changed: dict[str, Any], line: str) -> None:
    engine = RocksDBEngine(tmp_path, RocksDBOptions(**changed))
    engine.create("a")
    engine.close()
    newest = max(tmp_path.glob("OPTIONS-*"), key=lambda p: p.name)
    of_family = newest.read_text().split('[CFOptions "a"]')
    whole_database, family = of_family[0].split("[CFOptions")[0], of_family[1]
    end = "" if line.endswith(";") else "\n"
    assert f"{line}{end}" in whole_database + family


@pytest.mark.parametrize(("before", "after"), [("level", "universal"), ("universal", "level")])
def test_what_one_style_has_written_the_other_one_reads(
    tmp_path: Path, before: str, after: str
) -> None:
    """As hosts do that are brought up to date, and restores of old snapshots."""
    expected: dict[bytes, bytes | None] = {}
    for style in (before, after, before):
        options = RocksDBOptions(compaction_style=style, write_buffer_bytes=1 << 20)
        engine = RocksDBEngine(tmp_path, options)
        for n in range(8):
            keys = [b"%06d" % k for k in range(n, 20_000, 3)]
            values = [None if k % 7 == n else b"%d-%d" % (n, k) * 8 for k in range(len(keys))]
            engine.write({"a": (keys, values)})
            expected |= dict(zip(keys, values, strict=True))
            engine.flush()
        kept = sorted((k, v) for k, v in expected.items() if v is not None)
        with engine.scan("a", None, None) as entries:
            assert list(entries) == kept
        engine.close()


def test_all_engines_share_one_cache_and_one_budget(tmp_path: Path) -> None:
    one = RocksDBOptions(block_cache_bytes=8 << 20, write_budget_bytes=4 << 20)
    engines = [RocksDBEngine(tmp_path / str(n), RocksDBOptions()) for n in range(2)]
    engines.append(RocksDBEngine(tmp_path / "2", one))
    cache, buffers = SHARED.get(8 << 20, 4 << 20)
    assert buffers.get_buffer_size() == 4 << 20
    before = buffers.get_usage()
    for engine in engines:
        engine.write({"a": ([b"k"], [bytes(200_000)])})
    assert buffers.get_usage() - before > 3 * 200_000
    cache.set_capacity(0)  # what other tests left there would make room for what is read now
    cache.set_capacity(8 << 20)
    used = cache.get_usage()
    for engine in engines:
        engine.flush()
        engine.get("a", b"k")
    assert cache.get_usage() > used
    for engine in engines:
        engine.close()


def test_a_rate_limit_slows_flushes_but_loses_nothing(tmp_path: Path) -> None:
    engine = RocksDBEngine(tmp_path, RocksDBOptions(rate_limit_bytes_per_second=50 << 20))
    engine.write({"a": ([b"k"], [bytes(100_000)])})
    engine.flush()
    assert engine.get("a", b"k") == bytes(100_000)
    engine.close()


def test_equal_options_are_equal_and_render_once() -> None:
    options = RocksDBOptions()
    assert options == RocksDBOptions()
    assert options.render() is options.render()
