"""Where state hosts are: a static list in one string."""

from __future__ import annotations

import re
from dataclasses import dataclass

from state_lib.errors import ConfigurationError
from state_lib.names import check_name

_FORM = re.compile(r"(?P<id>[^=]+)=(?P<host>.+):(?P<flight>\d{1,5})/(?P<http>\d{1,5})")
_MAX_PORT = 65535


@dataclass(frozen=True)
class HostAddress:
    """One state host.

    Attributes:
        id: Its name, stable over restarts and addresses: tasks are placed by it.
        host: Name or address, to bind to and to connect to.
        flight_port: Arrow Flight: reads and commits of Spark's executors.
        http_port: Queries, health, metrics.
    """

    id: str
    host: str
    flight_port: int
    http_port: int

    def __str__(self) -> str:
        """As `parse_hosts` takes it."""
        return f"{self.id}={self.host}:{self.flight_port}/{self.http_port}"

    @property
    def flight_url(self) -> str:
        """For Arrow Flight clients."""
        return f"grpc://{self.host}:{self.flight_port}"

    @property
    def http_url(self) -> str:
        """For HTTP clients, without a slash at the end."""
        return f"http://{self.host}:{self.http_port}"


def parse_hosts(text: str) -> tuple[HostAddress, ...]:
    """Parse ``host-1=127.0.0.1:28815/28816,host-2=…``: id, address, Flight port, HTTP port.

    Raises:
        ConfigurationError: an entry of another form, a port beyond 65535, an id or a port twice.
    """
    found: list[HostAddress] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _FORM.fullmatch(entry)
        ports = [int(match[name]) for name in ("flight", "http")] if match else [0]
        if match is None or not all(0 < port <= _MAX_PORT for port in ports):
            message = f"host {entry!r} is not 'id=address:flight-port/http-port'"
            raise ConfigurationError(message, entry=entry)
        address = HostAddress(check_name("host", match["id"]), match["host"], *ports)
        _refuse_twice(address, found)
        found.append(address)
    return tuple(found)


def _refuse_twice(new: HostAddress, known: list[HostAddress]) -> None:
    if new.flight_port == new.http_port:
        message = f"host {new.id!r} has port {new.http_port} for both Flight and HTTP"
        raise ConfigurationError(message, host=new.id)
    ports = {new.flight_port, new.http_port}
    for old in known:
        if old.id == new.id:
            message = f"host id {new.id!r} appears twice"
            raise ConfigurationError(message, host=new.id)
        if old.host == new.host and ports & {old.flight_port, old.http_port}:
            message = f"hosts {old.id!r} and {new.id!r} share a port on {new.host}"
            raise ConfigurationError(message, host=new.id)
