"""Ports: a free one for a test, and a clear word when one of ours is taken."""

from __future__ import annotations

import errno
import random
import socket

import psutil

from state_lib.errors import PortInUse

_CHOSEN: set[int] = set()
_CHOICE = range(20_000, 32_000)
"""Below those that the kernel lends to connections: it would lend ours before we bind it."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now, and that this process was never given before."""
    for port in random.sample(_CHOICE, len(_CHOICE)):
        if port in _CHOSEN:
            continue
        with socket.socket() as sock:
            try:
                sock.bind((host, port))
            except OSError:
                continue
        _CHOSEN.add(port)
        return port
    raise PortInUse(
        f"no port of {_CHOICE.start} to {_CHOICE.stop} on {host} is free: end what listens there",
        host=host,
    )


def require_free(host: str, port: int, setting: str) -> None:
    """Refuse to go on when another process listens on a port that we are about to use.

    Args:
        host: The address that we shall bind to.
        port: The port.
        setting: What to change, as the user writes it: ``HOLDFAST_KAFKA_PORT``.

    Raises:
        PortInUse: names the port, its holder if the kernel tells us, and the setting.
    """
    with socket.socket() as sock:
        # As servers do: a port in TIME_WAIT is free, a listening one is not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return
    holder = _holder(port)
    message = (
        f"port {port} on {host} is taken by {holder or 'a process that this user may not see'}. "
        f"End that process, or set {setting} to a free port."
    )
    raise PortInUse(message, port=port, setting=setting, holder=holder)


def _holder(port: int) -> str | None:
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.AccessDenied, OSError):
        return None  # macOS needs root for this
    for connection in connections:
        local = connection.laddr
        if local and local.port == port and connection.status == psutil.CONN_LISTEN:
            if connection.pid is None:
                return None
            try:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
            except psutil.NoSuchProcess:
                return None
    return None
