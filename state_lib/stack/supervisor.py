"""supervisord: rendering its configuration, starting it, speaking to it."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any
from xmlrpc.client import Fault, ServerProxy

from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack.paths import Paths
from state_lib.stack.program import Program

START_TIMEOUT_S = 15.0
LOG_BYTES, LOG_BACKUPS = 20 << 20, 3
# Kafka and RocksDB keep a file open per segment; 1024 are soon used up.
OPEN_FILES = 65_536
# Between tries supervisor waits one second longer each time: 20 tries are three and a half minutes.
TRIES = 20
_ALREADY_STARTED, _NOT_RUNNING = 60, 70
# Names of supervisor's states by their numbers.
STATES = {
    0: "stopped",
    10: "starting",
    20: "running",
    30: "backoff",
    40: "stopping",
    100: "exited",
    200: "fatal",
}


def render(paths: Paths, programs: Iterable[Program]) -> str:
    """The configuration. Nothing starts by itself: `up` starts services one after the other."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    lines = [
        "[unix_http_server]",
        f"file={_escape(paths.socket)}",
        "[supervisord]",
        f"logfile={_escape(paths.log('supervisord'))}",
        "logfile_maxbytes=5MB",
        "logfile_backups=1",
        f"pidfile={_escape(paths.run / 'supervisord.pid')}",
        f"minfds={files}",
        f"childlogdir={_escape(paths.logs)}",
        *(["user=root"] if os.geteuid() == 0 else []),  # else it warns about running as root
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
    ]
    for program in programs:
        lines += [
            f"[program:{program.name}]",
            f"command={_escape(shlex.join(program.command()))}",
            f"directory={_escape(paths.home)}",
            f"priority={program.priority}",
            "autostart=false",
            "autorestart=true",
            "startsecs=1",
            f"startretries={TRIES}",
            f"stopwaitsecs={program.stop_wait_s}",
            "stopasgroup=true",
            "killasgroup=true",
            "redirect_stderr=true",
            f"stdout_logfile={_escape(paths.log(program.name))}",
            f"stdout_logfile_maxbytes={LOG_BYTES}",
            f"stdout_logfile_backups={LOG_BACKUPS}",
        ]
    return "\n".join(lines) + "\n"


def start(paths: Paths, environment: Mapping[str, str]) -> None:
    """Start supervisord as a daemon in its own session, and wait until it answers.

    Args:
        paths: Where its configuration is.
        environment: All variables that it and its programs get.

    Raises:
        ConfigurationError: it refused its configuration.
        Unavailable: it does not answer.
    """
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "state_lib.stack.launch", "-c", str(paths.config)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        message = f"supervisord did not start: {done.stderr.strip() or done.stdout.strip()}"
        raise ConfigurationError(message, config=str(paths.config))
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            Client(paths).pid()
        except Unavailable:
            time.sleep(0.05)
        else:
            return
    log = paths.log("supervisord")
    message = f"supervisord does not answer on {paths.socket}; its log is {log}."
    raise Unavailable(message, log=str(log))


class Client:
    """The few questions and orders that the stack has for its supervisor."""

    def __init__(self, paths: Paths) -> None:
        """Connect lazily."""
        from supervisor.xmlrpc import SupervisorTransport  # noqa: PLC0415 - 0.1 s, `--help` has none

        self._socket = paths.socket
        transport = SupervisorTransport(serverurl=f"unix://{paths.socket}")
        self._rpc = ServerProxy("http://localhost", transport=transport)

    def pid(self) -> int:
        """The supervisor's process id."""
        return int(self._call("getPID"))

    def info(self) -> dict[str, dict[str, Any]]:
        """What supervisor knows, by program."""
        return {str(one["name"]): one for one in self._call("getAllProcessInfo")}

    def start(self, name: str) -> None:
        """Ask for a program; does nothing if it runs. Does not wait."""
        try:
            self._call("startProcess", name, False)  # noqa: FBT003 - do not wait
        except Fault as fault:
            if fault.faultCode != _ALREADY_STARTED:
                message = f"supervisor cannot start {name}: {fault.faultString}"
                raise ConfigurationError(message, service=name) from fault

    def stop(self, name: str) -> None:
        """Ask a service to stop; it stays stopped until `start`. Does not wait."""
        try:
            self._call("stopProcess", name, False)  # noqa: FBT003 - do not wait
        except Fault as fault:
            if fault.faultCode != _NOT_RUNNING:
                message = f"supervisor cannot stop {name}: {fault.faultString}"
                raise ConfigurationError(message, service=name) from fault

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self._rpc.supervisor, method)(*arguments)
        except Fault:
            raise
        except Exception as error:  # a closed socket raises errors of many classes
            message = f"supervisor does not answer on {self._socket}: {error}"
            raise Unavailable(message, socket=str(self._socket)) from error


def _escape(value: object) -> str:
    return str(value).replace("%", "%%")
