"""Audits everything that an application holds, by a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

import state_lib
from holdfast_airflow.hooks.hosts import check_token
from holdfast_airflow.hooks.spark import SparkTarget, job_file
from holdfast_airflow.operators.job import ReportJobOperator
from state_lib.errors import ConfigurationError

if TYPE_CHECKING:
    from state_lib.config import Settings
    from state_lib.reports.folder import Kind

SHOWN = 20


class AuditOperator(ReportJobOperator):
    """Compares every entry of an application with an independent recompute: `holdfast audit`.

    ``<app>_audit.py`` in the jobs directory recomputes stores, outputs, dead letters and counts of
    dropped records from the sources, as a Spark batch. It is submitted through the Spark
    connection, detached; the stream may go on. See `ReportJobOperator` for what happens around it.

    The task fails, without a retry, if anything differs: the first differences and the next step
    are in its log.

    Args:
        spark_conn_id: The Spark connection; in client mode.
        conf: Spark properties; they win over Holdfast's.
        wait_s: Seconds to wait until all tasks of the application stand at one place.
        kwargs: see `ReportJobOperator`.

    Returns (as XCom): ``clean``, ``counts``, ``digests`` of the stores, ``records``, ``positions``,
    ``clock``, ``seconds``, and some ``differences``; with its ``url`` also under the key ``report``
    if the task fails.
    """

    kind: ClassVar[Kind] = "audit"
    template_fields: Sequence[str] = (
        *ReportJobOperator.template_fields,
        "spark_conn_id",
        "conf",
    )
    ui_color = "#e4d9f2"

    def __init__(
        self,
        *,
        spark_conn_id: str = "spark_default",
        conf: dict[str, str] | None = None,
        wait_s: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.conf = conf or {}
        self.wait_s = wait_s

    def command(self, settings: Settings, job: str) -> tuple[list[str], dict[str, str]]:
        """The command line of ``spark-submit``, and its environment.

        Raises:
            ConfigurationError: no such connection, or Spark's master is not there, or the file
                that recomputes is not.
            Unauthorized: a host refuses the token.
        """
        job_file(settings, self.app, f"{self.app}_audit.py")
        arguments = (self.app, job, str(self.wait_s))
        conf = {"spark.ui.enabled": "false", **self.conf}
        target = SparkTarget(
            self.spark_conn_id, f"audit-{self.app}", settings, conf, arguments=arguments
        )
        if target.in_cluster:
            raise ConfigurationError(
                f"connection {self.spark_conn_id!r} asks for deploy mode 'cluster': an audit reads "
                "the stores through its driver, which must be on a worker. Give `spark_conn_id` a "
                "connection in client mode",
                conn_id=self.spark_conn_id,
            )
        target.check()
        check_token(settings)
        return target.command(_entry()), target.environment()

    def brief(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Without the comparisons, which are in the report's file."""
        stores = [c for c in result["comparisons"] if c["kind"] == "store"]
        names = ("clean", "counts", "records", "positions", "clock", "seconds", "notes")
        return {
            **{name: result[name] for name in names},
            "digests": {c["name"]: c["digest_actual"] for c in stores},
            "differences": result["differences"][:SHOWN],
        }

    def judge(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what differs.

        Raises:
            AirflowFailException: something does.
        """
        for line in result["differences"][:SHOWN]:
            self.log.error("%s", line)
        for line in result["notes"]:
            self.log.info("%s", line)
        brief, counts = self.brief(result), result["counts"]
        if not result["clean"]:
            wrong = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
            raise AirflowFailException(
                f"{self.app} is not what its sources give: {wrong}; first "
                f"{brief['differences'][0]}. Next: 'holdfast digest {self.app} --against "
                "changelog' tells whether a store differs from its changelog (then 'holdfast "
                "restore run'), or both from the sources; read docs/how-to/audit.md"
            )
        self.log.info(
            "%s is clean: %s entries of %s records, in %s",
            self.app,
            f"{counts['compared']:,}",
            f"{result['records']:,}",
            ", ".join(f"{phase} {s:.1f} s" for phase, s in result["seconds"].items()),
        )
        return brief


def _entry() -> str:
    """The file to submit. It is not imported: it needs PySpark."""
    return str(Path(state_lib.__file__).parent / "audit" / "job.py")
