"""Buttons on a stream's task: its driver's log, and Spark's own page."""

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
    """The address of a page about the driver that a task supervises."""
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
