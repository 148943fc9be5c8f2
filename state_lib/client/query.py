"""Interactive queries from Python: routes keys to their owners, merges ranges of all hosts.

>>> with QueryClient(Settings.load().host_addresses, token) as client:  # doctest: +SKIP
...     client.get("flights", "aircraft", "N14228")["value"]
...     for window in client.windows("flights", "departures_by_hour", "JFK"): ...
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from state_lib.client.http import HostHttp, encoded
from state_lib.client.rows import Rows, ordering
from state_lib.errors import HoldfastError, NotFound, Unavailable
from state_lib.keys import partition_for
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.json_forms import key_text, prefix_bytes
from state_lib.protocol.placement import assign
from state_lib.serdes import serde_from

Json = dict[str, Any]


class QueryClient:
    """Asks state hosts; safe to share between threads. A context manager.

    Keys are Python values of the store's key serde: str for utf8, int for int64, bytes for bytes,
    a dict for several columns. The prefix of such a key is a dict of the first of them.
    Answers are the hosts' JSON (see any host's /openapi.json) as dicts.

    Every method may raise `Unavailable`, naming host and URL, when a host stays away or a task
    stays closed over a few tries; `Unauthorized`; `NotFound` for an unknown application or store.

    Args:
        hosts: all hosts, as the hosts themselves were given them: then each key is asked of its
            owner, with no host between. For keys some are enough, for any host asks the owner;
            ranges, counts and lists are put together from those that are given.
        token: bearer token, or None.
        timeout_s: of one request.
        page_rows: entries per request of a range, 1 to 10,000.
    """

    def __init__(
        self,
        hosts: Sequence[HostAddress],
        token: str | None = None,
        timeout_s: float = 30.0,
        page_rows: int = 1000,
    ) -> None:
        self._addresses = tuple(hosts)
        self._page_rows = page_rows
        self._hosts = {host.id: HostHttp(host, token, timeout_s) for host in hosts}
        self._known: dict[str, Json] = {}

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for host in self._hosts.values():
            host.close()

    # ------------------------------------------------------------------ what there is

    def apps(self) -> list[str]:
        """Applications that any host knows."""
        found = [host.get("/v1/apps")["apps"] for host in self._hosts.values()]
        return sorted({app["app"] for apps in found for app in apps})

    def stores(self, app: str) -> Json:
        """Stores and tasks of an application, put together from all hosts.

        As a host's ``/v1/apps/{app}/stores``, with entries and sizes added up and all tasks.
        """
        answers, unknown = [], None
        for host in self._hosts.values():
            try:
                answers.append(host.get(f"/v1/apps/{encoded(app)}/stores"))
            except NotFound as error:  # a host without a task of the application may not know it
                unknown = error
        if not answers:
            raise unknown or NotFound(f"no hosts to ask about {app!r}: set HOLDFAST_HOSTS", app=app)
        newest = max(answers, key=_epoch)
        totals = {
            s["name"]: s | {"approximate_entries": 0, "size_bytes": 0} for s in newest["stores"]
        }
        for answer in answers:
            for store in answer["stores"]:
                total = totals.get(store["name"], {})
                for count in ("approximate_entries", "size_bytes"):
                    total[count] = total.get(count, 0) + store[count]
        tasks = sorted((t for a in answers for t in a["tasks"]), key=lambda t: t["partition"])
        self._known[app] = newest
        return {
            "app": app,
            "partitions": newest["partitions"],
            "stores": list(totals.values()),
            "tasks": tasks,
        }

    def store(self, app: str, store: str) -> Json:
        """What one store is: kind, serdes, window size. Remembered; asks one host if need be."""
        for known in (self._known.get(app), None):
            found = known or self._describe(app)
            for spec in found["stores"]:
                if spec["name"] == store:
                    return dict(spec)
        names = [spec["name"] for spec in found["stores"]]
        raise NotFound(
            f"application {app!r} has no store {store!r}; its stores: {names}",
            app=app,
            store=store,
            known=names,
        )

    # ------------------------------------------------------------------ queries

    def get(self, app: str, store: str, key: Any) -> Json | None:
        """The entry of a key: ``key``, ``value``, ``timestamp`` and ``position``; None if absent.

        Raises:
            SerdeError: the key is not of the store's key serde.
        """
        spec = self.store(app, store)
        host, path = self._of_key(app, spec, key)
        try:
            return host.get(f"{_at(app, store)}/keys/{path}")
        except NotFound as error:
            if "key" not in error.details:
                raise
            return None

    def range(
        self,
        app: str,
        store: str,
        first: Any = None,
        last: Any = None,
        *,
        prefix: str | bytes | Json | None = None,
    ) -> Rows:
        """Entries of all hosts in the order of serialized keys; both bounds are included.

        Lazy: pages are fetched as rows are taken, and each page reads the newest state.

        Raises:
            SerdeError: a bound is not of the store's key serde.
            InvalidRequest: the prefix is none of its keys.
        """
        spec = self.store(app, store)
        serde = spec["key_serde"]
        query = {n: _key(serde, v)[1] for n, v in (("from", first), ("to", last)) if v is not None}
        query |= _prefix(serde, prefix)
        return self._merged(app, spec, f"{_at(app, store)}/range", query)

    def windows(
        self,
        app: str,
        store: str,
        key: Any = None,
        first: int | str | None = None,
        last: int | str | None = None,
        *,
        prefix: str | bytes | Json | None = None,
    ) -> Rows:
        """Windows of one key by start, or of all keys by segment of time, key, start.

        Args:
            app: application.
            store: its window store.
            key: None for all keys.
            first: least window start, in ms or ISO 8601; included.
            last: greatest window start; included.
            prefix: of the keys, where no key is given.

        Raises:
            SerdeError: the key is not of the store's key serde.
            InvalidRequest: the prefix is none of its keys.
        """
        spec = self.store(app, store)
        query = {n: str(v) for n, v in (("from", first), ("to", last)) if v is not None}
        query |= _prefix(spec["key_serde"], prefix)
        if key is None:
            return self._merged(app, spec, f"{_at(app, store)}/windows", query)
        host, path = self._of_key(app, spec, key)
        rows = Rows()
        rows.take(self._pages(host, f"{_at(app, store)}/windows/{path}", query, rows))
        return rows

    def count(self, app: str, store: str) -> int:
        """Live entries, exactly: every host reads all of its own."""
        at = f"{_at(app, store)}/count"
        return sum(host.get(at)["count"] for host in self._owners(app))

    # ------------------------------------------------------------------ inside

    def _describe(self, app: str) -> Json:
        """What the first host that knows says; hosts are tried again only if none does."""
        failure: HoldfastError = NotFound(f"no hosts to ask about {app!r}: set HOLDFAST_HOSTS")
        path = f"/v1/apps/{encoded(app)}/stores"
        for patient in (False, True):
            for host in self._hosts.values():
                try:
                    self._known[app] = found = host.get(path, patient=patient)
                except (NotFound, Unavailable) as error:
                    if not isinstance(failure, Unavailable):
                        failure = error
                else:
                    return found
            if isinstance(failure, NotFound):
                break
        raise failure

    def _of_key(self, app: str, spec: Json, key: Any) -> tuple[HostHttp, str]:
        """The key's owner, and the key for its URL."""
        raw, text = _key(spec["key_serde"], key)
        partitions = self._known[app]["partitions"]
        owner = assign(app, partitions, self._addresses)[partition_for(raw, partitions)]
        return self._hosts[owner.id], encoded(text)

    def _owners(self, app: str) -> list[HostHttp]:
        """Hosts that own a task of the application."""
        known = self._known.get(app) or self._describe(app)
        owners = assign(app, known["partitions"], self._addresses)
        return [self._hosts[id_] for id_ in dict.fromkeys(owner.id for owner in owners)]

    def _merged(self, app: str, spec: Json, path: str, query: dict[str, str]) -> Rows:
        rows = Rows()
        pages = [self._pages(host, path, query, rows) for host in self._owners(app)]
        rows.take(heapq.merge(*pages, key=ordering(spec)))
        return rows

    def _pages(
        self, host: HostHttp, path: str, query: dict[str, str], rows: Rows
    ) -> Iterator[Json]:
        cursor: str | None = ""
        while cursor is not None:
            resume = {"cursor": cursor} if cursor else {}
            page = host.get(path, {**query, **resume, "limit": str(self._page_rows)})
            rows.position.update(page["position"])
            yield from page["entries"]
            cursor = page["cursor"]


def _key(serde: Any, key: Any) -> tuple[bytes, str]:
    """A key's bytes and how it is written. Raises SerdeError."""
    return serde_from(serde).serialize(key), key_text(serde, key)


def _prefix(serde: Any, prefix: Any) -> dict[str, str]:
    """A query's part. Raises InvalidRequest: a host may not see what is wrong with what is sent."""
    if prefix is None:
        return {}
    prefix_bytes(serde, prefix)
    return {"prefix": key_text(serde, prefix)}


def _at(app: str, store: str) -> str:
    return f"/v1/apps/{encoded(app)}/stores/{encoded(store)}"


def _epoch(answer: Json) -> int:
    return max((t["position"]["epoch"] for t in answer["tasks"] if t["position"]), default=-1)
