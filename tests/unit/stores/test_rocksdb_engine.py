"""What only the RocksDB engine does: crashes, corruption, what is never torn."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from state_lib.errors import InvalidRequest, StateCorrupt, Unavailable
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions, write_sst
from state_lib.stores.rocksdb.failures import translated

SMALL = RocksDBOptions(write_buffer_bytes=64 << 10)

WRITER = """
import sys, os
from pathlib import Path
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
engine = RocksDBEngine(sys.argv[1], RocksDBOptions(write_buffer_bytes=64 << 10))
n = 0
while True:
    n += 1
    mark = n.to_bytes(8, "big")
    bulk = [os.urandom(8) for _ in range(50)]
    engine.write({
        "a": ([b"n", *bulk], [mark] * 51), "b@0": ([b"n"], [mark]), "__meta__": ([b"n"], [mark])
    })
    if sys.argv[2] == "flush" and n % 20 == 0:
        engine.flush()
        print(n, flush=True)
    if sys.argv[2] == "aside" and n % 20 == 0:
        import state_lib.stores.rocksdb.engine as module
        module._SMALL_BYTES = 0
        engine._flush_aside()
        print(n, flush=True)
    if sys.argv[2] == "exit" and n == 20:
        print(n, flush=True)
        break  # no close: the interpreter drops everything in whatever order
    if sys.argv[2] == "close" and n == 20:
        import state_lib.stores.rocksdb.engine as module
        closes = []
        really = module._close
        def close_one_then_die(handle):
            if closes:
                os.kill(os.getpid(), 9)
            closes.append(handle)
            really(handle)
        module._close = close_one_then_die
        print(n, flush=True)
        engine.close()
    if sys.argv[2] == "pressure" and n % 200 == 0:
        print(n, flush=True)
"""


def marks(path: Path) -> list[int]:
    engine = RocksDBEngine(path)
    found = [engine.get(family, b"n") or b"" for family in ("a", "b@0", "__meta__")]
    engine.close()
    return [int.from_bytes(value, "big") for value in found]


def run_writer(path: Path, mode: str, *, lines: int) -> int:
    """Run until it has printed that many lines, kill it, and return the last number."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), mode], stdout=subprocess.PIPE, text=True
    ) as child:
        last = 0
        for line, _ in zip(child.stdout or (), range(lines), strict=False):
            last = int(line)
        if mode in ("exit", "close"):
            child.wait(30)
        child.kill()
    return last


@pytest.mark.parametrize("mode", ["flush", "aside", "pressure"])
def test_a_kill_never_tears_a_write(tmp_path: Path, mode: str) -> None:
    for attempt in range(3):
        path = tmp_path / str(attempt)
        last = run_writer(path, mode, lines=3 + attempt)
        a, b, meta = marks(path)
        assert a == b == meta
        assert a > 0
        if mode in ("flush", "aside"):
            assert a >= last


def test_leaving_without_close_does_not_tear_either(tmp_path: Path) -> None:
    assert run_writer(tmp_path, "exit", lines=1) == 20
    assert marks(tmp_path) == [20, 20, 20]


def test_a_kill_in_the_middle_of_close_does_not_tear(tmp_path: Path) -> None:
    assert run_writer(tmp_path, "close", lines=1) == 20
    assert marks(tmp_path) == [20, 20, 20]


def test_garbage_collection_without_close_does_not_tear(tmp_path: Path) -> None:
    engine = RocksDBEngine(tmp_path)
    engine.write({f: ([b"n"], [b"\1"]) for f in ("a", "b@0", "__meta__")})
    del engine
    assert marks(tmp_path) == [1, 1, 1]


def test_close_keeps_everything_and_frees_the_lock(tmp_path: Path) -> None:
    for n in range(3):
        engine = RocksDBEngine(tmp_path)
        engine.write({f: ([b"n"], [bytes([n])]) for f in ("a", "b@0", "__meta__")})
        with engine.scan("a", None, None):
            engine.close()
        assert marks(tmp_path) == [n, n, n]


def test_two_engines_on_one_directory_are_refused(tmp_path: Path) -> None:
    first = RocksDBEngine(tmp_path)
    with pytest.raises(Unavailable, match="another engine has it open"):
        RocksDBEngine(tmp_path)
    first.close()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("IO error: No such file or directory: While open /blockchain/0/10.sst", StateCorrupt),
        ("Corruption: block checksum mismatch in /state/lock-Busy-Aborted/0/1.sst", StateCorrupt),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", Unavailable),
        ("IO error: lock hold by current process, acquire time 1: /x/LOCK", Unavailable),
        ("Resource busy: ", Unavailable),
        ("IO error: No space left on device: While appending to file: /x/1.sst", Unavailable),
    ],
)  # fmt: skip
def test_a_word_in_a_path_decides_nothing(text: str, error: type[Exception]) -> None:
    with pytest.raises(error), translated(Path("/x"), "read"):
        raise Exception(text)  # noqa: TRY002 - as rocksdict does


def test_a_flush_leaves_no_directory_behind(tmp_path: Path) -> None:
    engine = RocksDBEngine(tmp_path)
    engine.write({"a": ([b"k"], [b"v"])})
    engine.flush()
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []
    engine.close()
    (tmp_path / "flush.tmp").mkdir()  # as a crash in the middle leaves it
    RocksDBEngine(tmp_path).close()
    assert not (tmp_path / "flush.tmp").exists()


def filled(path: Path) -> None:
    engine = RocksDBEngine(path)
    engine.write({"a": ([b"k"], [b"v" * 1000]), "b": ([b"k"], [b"v"])})
    engine.close()


def read_one(path: Path) -> None:
    engine = RocksDBEngine(path)
    try:
        engine.get("a", b"k")
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("how", ["garbage", "removed"])
def test_a_damaged_directory_is_state_corrupt(tmp_path: Path, name: str, how: str) -> None:
    filled(tmp_path)
    hit = list(tmp_path.glob(name))
    assert hit
    for file in hit:
        if how == "removed":
            file.unlink()
        else:
            file.write_bytes(b"garbage" * 100)
    with pytest.raises(StateCorrupt) as caught:
        read_one(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert caught.value.details["path"] == str(tmp_path)
    assert caught.value.details["reason"]


def test_a_block_that_rots_later_is_state_corrupt(tmp_path: Path) -> None:
    filled(tmp_path)
    for file in tmp_path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[5:10] = b"wrong"
        file.write_bytes(data)
    engine = RocksDBEngine(tmp_path)
    with pytest.raises(StateCorrupt, match="Corruption"):
        engine.get("a", b"k")
    for reverse in (False, True):
        with (
            engine.scan("a", None, None, reverse=reverse) as entries,
            pytest.raises(StateCorrupt, match="Corruption"),
        ):
            list(entries)
    assert engine.open_iterators == 0
    engine.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_bad_block_in_the_middle_does_not_end_a_scan_in_silence(
    tmp_path: Path, reverse: bool
) -> None:
    engine = RocksDBEngine(tmp_path / "db", RocksDBOptions(compression="none"))
    keys = [n.to_bytes(2, "big") for n in range(1000)]
    engine.write({"a": (keys, [b"v" * 100] * 1000)})
    engine.close()
    (file,) = (tmp_path / "db").glob("*.sst")
    data = bytearray(file.read_bytes())
    data[50_000:50_010] = b"x" * 10
    file.write_bytes(data)
    engine = RocksDBEngine(tmp_path / "db")
    with engine.scan("a", None, None, reverse=reverse) as entries:
        assert [k for k, _ in zip(range(100), entries, strict=False)]
    seen: list[bytes] = []
    with (
        engine.scan("a", None, None, reverse=reverse) as entries,
        pytest.raises(StateCorrupt, match="Corruption"),
    ):
        seen.extend(key for key, _ in entries)
    assert 0 < len(seen) < 1000
    engine.close()


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("a file")
    with pytest.raises(StateCorrupt, match="db"):
        RocksDBEngine(tmp_path / "db")


def test_sst_helper_writes_deletes_and_ingests(tmp_path: Path) -> None:
    engine = RocksDBEngine(tmp_path / "db", SMALL)
    engine.write({"a": ([b"1", b"2"], [b"old", b"old"])})
    write_sst(tmp_path / "x.sst", [b"1", b"2"], [None, b"new"], SMALL)
    engine.ingest("a", [tmp_path / "x.sst"])
    assert engine.get_many("a", [b"1", b"2"]) == [None, b"new"]
    with pytest.raises(InvalidRequest):
        write_sst(tmp_path / "y.sst", [b"2", b"1"], [b"", b""])
    engine.close()


def test_many_runs_are_merged_while_more_of_them_come(tmp_path: Path) -> None:
    """More than RocksDB lets lie before it stops writes (36), with deletes in later ones."""
    engine = RocksDBEngine(tmp_path / "db")
    expected: dict[bytes, bytes] = {}
    for n in range(60):
        keys = [b"%06d" % k for k in range(n % 5, 20_000, 5)]
        values = [None if (k + n) % 4 == 0 else b"%d-%d" % (n, k) for k in range(len(keys))]
        path = tmp_path / f"{n}.sst"
        engine.write_run(path, keys, values)
        engine.ingest("a", [path])
        for key, value in zip(keys, values, strict=True):
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        if n % 20 == 0:
            engine.write({"a": ([b"between"], [b"%d" % n])})
            expected[b"between"] = b"%d" % n
    engine.flush()
    with engine.scan("a", None, None) as entries:
        assert list(entries) == sorted(expected.items())
    engine.close()
    assert len(list((tmp_path / "db").glob("*.sst"))) < 20, "merged"


def test_ingesting_over_a_memtable_tears_nothing(tmp_path: Path) -> None:
    engine = RocksDBEngine(tmp_path / "db", SMALL)
    engine.write({"a": ([b"1"], [b"v"]), "b": ([b"1"], [b"v"])})
    engine.write_run(tmp_path / "x", [b"1"], [b"run"])
    engine.ingest("a", [tmp_path / "x"])  # overlaps: RocksDB has to flush
    engine.checkpoint(tmp_path / "copy")
    copy = RocksDBEngine(tmp_path / "copy")
    assert (copy.get("a", b"1"), copy.get("b", b"1")) == (b"run", b"v")
    copy.close()
    engine.close()


def test_checkpoints_under_writes_are_whole(tmp_path: Path) -> None:
    engine = RocksDBEngine(tmp_path / "db", SMALL)
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            mark = n.to_bytes(8, "big")
            engine.write({f: ([b"n"], [mark]) for f in ("a", "b@0", "__meta__")})

    writer = threading.Thread(target=write)
    writer.start()
    mark = None
    for n in range(5):
        while engine.get("__meta__", b"n") == mark:  # five can be taken before it has the GIL
            writer.join(0.001)
        mark = engine.get("__meta__", b"n")
        engine.checkpoint(tmp_path / str(n))
    stop.set()
    writer.join()
    engine.close()
    seen = [marks(tmp_path / str(n)) for n in range(5)]
    assert all(a == b == meta > 0 for a, b, meta in seen)
    assert sorted(seen) == seen
    assert seen[0] < seen[-1]


def test_checkpoints_leave_the_rest_of_the_process_running(tmp_path: Path) -> None:
    """`_flush_aside` has flushed everything, atomically, before rocksdict takes the GIL."""
    engine = RocksDBEngine(tmp_path / "db", RocksDBOptions(write_buffer_bytes=128 << 20))
    rows = [i.to_bytes(8, "big") for i in range(1000)]
    engine.write({f: (rows, [b"x" * 10_000] * 1000) for f in ("a", "b@0", "__meta__")})
    before = {f: engine._memtable_bytes(f) for f in ("a", "b@0")}
    engine._flush_aside()
    assert all(engine._memtable_bytes(f) < before[f] / 100 for f in before)
    engine.checkpoint(tmp_path / "copy")
    assert (tmp_path / "copy" / "CURRENT").exists()
    engine.close()


def test_a_checkpoint_opens_read_only_and_stays_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path / "db")
    engine = RocksDBEngine(tmp_path / "db")
    engine.checkpoint(tmp_path / "copy")
    before = {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir()}
    copy = RocksDBEngine(tmp_path / "copy", read_only=True)
    assert copy.get("b", b"k") == b"v"
    with pytest.raises((Unavailable, InvalidRequest, StateCorrupt)):
        copy.write({"b": ([b"k"], [b"w"])})
    copy.close()
    after = {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir()}
    assert {n: c for n, c in after.items() if n != "LOG"} == before
    engine.close()
