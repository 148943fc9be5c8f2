"""Buttons on tasks: a driver's log, Spark's own page, the newest capacity report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

URL_PREFIX = "/holdfast"
"""Where `holdfast_airflow.ui` is mounted in the api-server."""


def page(ti_key: TaskInstanceKey, name: str) -> str:
    """The address of a page about the application of a task."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}{URL_PREFIX}/streams/{ti_key.dag_id}/{ti_key.task_id}/{name}"


@attrs.define()
class DriverLogLink(BaseOperatorLink):
    """The end of the driver's log, on a page of Airflow's api-server."""

    name = "Driver's log"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page's address; the worker calls this and keeps it as XCom."""
        del operator
        return page(ti_key, "log")


@attrs.define()
class SparkUiLink(BaseOperatorLink):
    """Spark's page of the driver that runs now: a redirection, since every start may move it."""

    name = "Spark UI"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """As `DriverLogLink.get_link`."""
        del operator
        return page(ti_key, "spark")


@attrs.define()
class CapacityReportLink(BaseOperatorLink):
    """The newest capacity report of the application, on a page of Airflow's api-server."""

    name = "Capacity report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """As `DriverLogLink.get_link`."""
        del operator
        return page(ti_key, "capacity")
