"""Ports: a free one for a test, and a clear word when one of ours is taken."""

from __future__ import annotations

import errno
import socket

import psutil

from state_lib.errors import PortInUse


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago, as the kernel chooses it."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


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
