"""Loads a job's data, with progress in the task's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.settings import settings_of
from state_lib.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

REPORT_EVERY_S = 10.0


class LoadOperator(BaseOperator):
    """Publishes a job's data to its source topic, by ``jobs/<name>_load.py``.

    Each record is published once, however often the task is killed, cleared or run: the loader
    compares what is there and goes on behind it. So retries are harmless.

    Args:
        name: Whose data: the loader is ``<name>_load.py`` in the jobs directory.
        limit: Publish only the first records; a number, or a template that renders to one.
        rate: Most records per second, as ``limit``.
        env: ``HOLDFAST_*`` variables that win over those of the worker.

    Returns (as XCom): ``{"found": …, "added": …}``, both in records.
    """

    template_fields: Sequence[str] = ("name", "limit", "rate", "env")
    ui_color = "#d8ecd4"

    def __init__(
        self,
        *,
        name: str,
        limit: int | str | None = None,
        rate: float | str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.limit = limit
        self.rate = rate
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, int]:
        """Publish what is missing.

        Raises:
            AirflowFailException: no such loader, a wrong setting, or a topic with other records.
            AirflowException: the brokers are away.
        """
        del context
        # Loaders import what they need: pandas, confluent-kafka.
        from state_lib.companions import companion  # noqa: PLC0415

        with as_airflow():
            limit = self._number("limit", int)
            rate = self._number("rate", float)
            settings = settings_of(self.env)
            loader = companion(self.name, "load", settings.jobs_dir, "load")
            self.log.info("Loading %s into %s", self.name, settings.bootstrap_servers)
            started = time.monotonic()
            report = progress(self.log, self.name)
            loaded = loader.load(settings, limit=limit, rate=rate, report=report)
        seconds = time.monotonic() - started
        self.log.info(
            "%s: %s added, %s were there, %.1f s",
            self.name,
            f"{loaded.added:,}",
            f"{loaded.found:,}",
            seconds,
        )
        return {"found": loaded.found, "added": loaded.added}

    def _number(self, name: str, kind: Callable[[Any], Any]) -> Any:
        """What a template rendered: a number, or nothing."""
        value = getattr(self, name)
        try:
            return None if value in (None, "", "None") else kind(value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{name} of the task that loads {self.name!r} is {value!r}: give a number, or "
                "leave it empty",
                name=self.name,
                value=str(value),
            ) from error


def progress(log: Logger, name: str, every_s: float = REPORT_EVERY_S) -> Callable[[int, int], None]:
    """A loader's reporter: one line of log every ``every_s`` seconds, and the first and last."""
    started = time.monotonic()
    said = [float("-inf")]

    def report(done: int, total: int) -> None:
        now = time.monotonic()
        if now - said[0] < every_s and done < total:
            return
        said[0] = now
        rate = done / max(now - started, 1e-3)
        share = done / max(total, 1)
        log.info("%s: %s of %s (%.0f %%), %s/s", name, *_counts(done, total), share * 100, _n(rate))

    return report


def _counts(*numbers: int) -> tuple[str, ...]:
    return tuple(map(_n, numbers))


def _n(number: float) -> str:
    return f"{number:,.0f}"
