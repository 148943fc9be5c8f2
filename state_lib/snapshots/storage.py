"""Where one task's snapshots lie: any URL that fsspec knows. Nothing here knows what they mean."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from state_lib.errors import ConfigurationError, HoldfastError, StorageUnavailable, Unavailable
from state_lib.names import check_name
from state_lib.protocol.marker import now_ms

ANSWER_S = 45.0
"""For one question, tries of a filesystem's own included: less than a sensor waits for a look."""
SLOWEST = 64 << 10
"""Bytes per second that are written at the least; many files share a line."""
_PIECE_BYTES = 4 << 20
_PARTIAL = ".partial-"
_STEPS = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "raise the quota there or free space",
    errno.EROFS: "it is mounted read-only: make it writable",
    errno.EACCES: "allow this process to read and write there",
    errno.EPERM: "allow this process to read and write there",
}
_AWAY = "look whether it exists and can be reached, and at the credentials"


class Stored(NamedTuple):
    """Size in bytes, and how long ago it was written (ms)."""

    size: int
    age_ms: int


class Storage:
    """Objects below ``<url>/<part>/…``, named by relative paths. Safe for several threads.

    What is written appears whole or not at all: by a rename on local disk; object stores have no
    other way.

    Storage that takes connections and says nothing holds nobody up for ever: questions end after
    `ANSWER_S`, writes after as much and what their size allows, if fsspec's filesystem can be
    cancelled (S3's, Google's and Azure's can). The bytes of a download come by the filesystem's
    own time-outs.

    Args:
        url: of all snapshots.
        parts: names below it, checked.
        kept: what lies there, for errors: ``<KEPT>S_URL`` is the setting.

    Raises:
        InvalidName: a part that could leave the URL.
        ConfigurationError: a protocol that is unknown or not installed.
    """

    def __init__(self, url: str, *parts: str, kept: str = "snapshot") -> None:
        for part in parts:
            check_name(f"{kept} folder", part)
        self._kept = kept
        self.url = "/".join((url.rstrip("/"), *parts))
        try:
            base = UPath(url, use_listings_cache=False)
            self._fs: Any = base.fs
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                f"{kept}s cannot be kept in {url}: {error}; set HOLDFAST_{kept.upper()}S_URL to "
                "one that fsspec knows (for s3:// install holdfast[s3])",
                url=url,
            ) from error
        self._root = "/".join((base.path.rstrip("/"), *parts))
        self._local = isinstance(self._fs, LocalFileSystem)

    def listing(self, folder: str) -> dict[str, Stored]:
        """Files directly in a folder, partial ones too; none if there is no such folder."""
        return {
            name: Stored(int(entry["size"] or 0), now_ms() - _modified_ms(entry))
            for name, entry in self._ls(folder)
            if entry["type"] == "file"
        }

    def folders(self) -> list[str]:
        """Names of the folders directly below."""
        return sorted(name for name, entry in self._ls("") if entry["type"] == "directory")

    def read(self, name: str) -> bytes | None:
        """The content, or None if it is not there."""
        with self._translated(f"read {name}"):
            try:
                content: bytes = self._within(ANSWER_S, "cat_file", f"{self._root}/{name}")
            except FileNotFoundError:
                return None
            return content

    def write(self, name: str, content: bytes) -> None:
        """Write or replace."""
        with self._translated(f"write {name}"):
            if not self._local:
                limit_s = _writing_s(len(content))
                self._within(limit_s, "pipe_file", f"{self._root}/{name}", content)
                return
            with self._replacing(name) as partial:
                partial.write_bytes(content)

    def upload(self, local: Path, name: str) -> None:
        """Write or replace by a local file's content."""
        with self._translated(f"write {name}"):
            if not self._local:
                limit_s = _writing_s(local.stat().st_size)
                self._within(limit_s, "put_file", str(local), f"{self._root}/{name}")
                return
            with self._replacing(name) as partial:
                shutil.copyfile(local, partial)

    def download(self, name: str, local: Path) -> bool:
        """Copy to a local file; False if there is no such object.

        Raises:
            Unavailable: the local disk is full.
        """
        with self._translated(f"read {name}"):
            try:
                self._fs.get_file(f"{self._root}/{name}", str(local))
            except FileNotFoundError:
                return False
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise Unavailable(
                    f"cannot write {local}: {error.strerror}; free space, then try again",
                    path=str(local),
                ) from error
            return True

    def sha256(self, name: str) -> str | None:
        """Of the content, read piece by piece; None if it is not there."""
        found = hashlib.sha256()
        with self._translated(f"read {name}"):
            try:
                with self._fs.open(f"{self._root}/{name}", "rb") as file:
                    while piece := file.read(_PIECE_BYTES):
                        found.update(piece)
            except FileNotFoundError:
                return None
            return found.hexdigest()

    def delete(self, names: Iterable[str]) -> None:
        """Remove what is there; what is not is no error."""
        for name in names:
            with self._translated(f"delete {name}"), contextlib.suppress(FileNotFoundError):
                self._within(ANSWER_S, "rm_file", f"{self._root}/{name}")

    def rename(self, name: str, other: str) -> None:
        """Give another name to what is there; what is not is no error."""
        with self._translated(f"rename {name}"), contextlib.suppress(FileNotFoundError):
            here, there = f"{self._root}/{name}", f"{self._root}/{other}"
            if not isinstance(self._fs, AsyncFileSystem):
                self._fs.mv(here, there)
                return
            self._within(ANSWER_S, "cp_file", here, there)  # object stores cannot rename
            self._within(ANSWER_S, "rm_file", here)

    def _ls(self, folder: str) -> list[tuple[str, dict[str, Any]]]:
        path = f"{self._root}/{folder}".rstrip("/")
        with self._translated(f"list {path}"):
            try:
                found = self._within(ANSWER_S, "ls", path, detail=True)
            except FileNotFoundError:
                return []
            return [(e["name"].rstrip("/").rsplit("/", 1)[-1], e) for e in found]

    def _within(self, seconds: float, method: str, *arguments: Any, **more: Any) -> Any:
        """Call the filesystem; one that can be cancelled is, when the time is over.

        aiohttp's own time-outs do not see a server that never says that a write may go on.
        """
        if not isinstance(self._fs, AsyncFileSystem):
            return getattr(self._fs, method)(*arguments, **more)
        call: Callable[..., Any] = getattr(self._fs, f"_{method}")
        try:
            return sync(self._fs.loop, call, *arguments, timeout=seconds, **more)
        except TimeoutError as error:
            if str(error):  # of the filesystem itself
                raise
            raise TimeoutError(f"no answer within {seconds:.0f} s") from error

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """A file beside, synced and renamed at the end: a crash of the machine tears nothing."""
        final = Path(self._root) / name
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.with_name(f"{final.name}{_PARTIAL}{secrets.token_hex(4)}")
        try:
            yield partial
            with partial.open("rb") as done:
                os.fsync(done.fileno())
            partial.replace(final)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except Exception as error:  # each filesystem has its own errors
            number = error.errno if isinstance(error, OSError) else None
            step = _STEPS.get(number or 0, _AWAY)
            raise StorageUnavailable(
                f"{self._kept} storage {self.url}: cannot {action}: {str(error) or repr(error)}; "
                f"{step}, then ask again",
                url=self.url,
                action=action,
                reason=str(error) or repr(error),
            ) from error


def _writing_s(size: int) -> float:
    return ANSWER_S + size / SLOWEST


def is_partial(name: str) -> bool:
    """Whether a listed name is that of a file which was never completed."""
    return _PARTIAL in name


def _modified_ms(entry: dict[str, Any]) -> int:
    """When a listed file was written; a filesystem that does not tell says now."""
    for key in ("LastModified", "mtime", "last_modified", "updated", "modified", "created"):
        value = entry.get(key)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
        if isinstance(value, int | float):
            return int(value * 1000)
    return now_ms()
