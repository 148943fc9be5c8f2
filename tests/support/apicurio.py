"""A Schema Registry that really runs: Apicurio's, which speaks Confluent's interface.

`make setup` fetches it. It has its schemas in a file, and so knows them again after it was away.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx

from state_lib.settings.registry import Registry
from state_lib.stack import jars
from state_lib.stack.java import java_binary
from state_lib.stack.ports import free_port
from tests.support.waiting import SLOWNESS, until

LOGIN = ("flights", "s3:cret")
_OK = 200
_START_S, _STOP_S = 120, 20
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Apicurio:
    """``url`` is that of Confluent's interface; it lets `LOGIN` in, and nobody else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self._port = folder, folder / "registry.log", free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def known(self) -> Registry:
        """As clients know it."""
        return Registry(self.url, *LOGIN)

    def start(self) -> Self:
        """Start it, and wait until it answers; does nothing when it runs."""
        if self._process is not None:
            return self
        (program,) = _unpacked().glob("*-runner.jar")
        scratch = f"-Djava.io.tmpdir={self.folder}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [java_binary(), *_JVM, scratch, "-jar", str(program)],
                env={**os.environ, **self._settings()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.kill)  # a test run that ends early leaves no registry behind
        until(self._answers, _START_S, f"a registry that answers, see {self.log}")
        return self

    def stop(self) -> None:
        """It closes its file, and nobody listens on its port any more."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S * SLOWNESS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None
        atexit.unregister(self.kill)

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """A schema's id, as the stand-in's `register`."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return int(self._asked("POST", f"subjects/{subject}/versions", schema=text, **more)["id"])

    def delete(self, subject: str, version: int) -> None:
        """Softly, as the stand-in's `delete`."""
        self._asked("DELETE", f"subjects/{subject}/versions/{version}")

    def forget(self, subject: str, version: int) -> None:
        """For good."""
        self.delete(subject, version)
        self._asked("DELETE", f"subjects/{subject}/versions/{version}?permanent=true")

    def _asked(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx.request(method, f"{self.url}/{path}", auth=LOGIN, json=body or None)
        assert answer.status_code == _OK, (method, path, answer.status_code, answer.text)
        return answer.json()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the registry ended, see {self.log}"
        try:
            answer = httpx.get(f"{self.url}/subjects", auth=LOGIN, timeout=5)
        except httpx.TransportError:
            return False
        return answer.status_code == _OK

    def _settings(self) -> dict[str, str]:
        name, password = LOGIN
        users = "QUARKUS_SECURITY_USERS_EMBEDDED"
        return {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self._port),
            "QUARKUS_HTTP_AUTH_BASIC": "true",
            f"{users}_PLAIN_TEXT": "true",
            f"{users}_USERS_{name.upper()}": password,
            f"{users}_ROLES_{name.upper()}": "sr-admin",
            "APICURIO_STORAGE_KIND": "sql",
            "APICURIO_STORAGE_SQL_KIND": "h2",
            "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{self.folder / 'schemas'}",
            "APICURIO_DATASOURCE_JDBC_INITIAL_SIZE": "1",
            "APICURIO_DATASOURCE_JDBC_MIN_SIZE": "1",
            "APICURIO_DATASOURCE_JDBC_MAX_SIZE": "10",
        }


@contextmanager
def running_registry(folder: Path) -> Iterator[Apicurio]:
    """It runs for the time of the block."""
    registry = Apicurio(folder)
    try:
        yield registry.start()
    finally:
        registry.stop()


def _unpacked() -> Path:
    """The archive that ``jars.lock`` names, unpacked once beside it."""
    (archive,) = jars.fetch("registry")
    folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
    if not folder.exists():
        staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=archive.parent))
        shutil.unpack_archive(archive, staging, filter="data")
        staging.rename(folder)
    return folder
