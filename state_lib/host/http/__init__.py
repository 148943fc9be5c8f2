"""The HTTP side of a host: health, metrics, interactive queries."""

from state_lib.host.http.app import HttpServer

__all__ = ["HttpServer"]
