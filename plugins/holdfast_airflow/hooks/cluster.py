"""Drivers that run inside a cluster (YARN, Kubernetes): submitted and tracked by the provider.

Tested with the provider's own hook, a scripted ``spark-submit`` and a small ResourceManager of
YARN; not run against a real cluster, and on Kubernetes not at all.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast_airflow.errors import SubmissionUnclear
from holdfast_airflow.hooks.spark import SparkTarget, refused
from holdfast_airflow.settings import AIRFLOWS
from state_lib.errors import Unavailable

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from state_lib.drivers.process import DriverProcess

log = logging.getLogger(__name__)
# Paths of this machine mean nothing in a container, and a secret does not belong on a command line:
# give the paths of their files there (HOLDFAST_TOKEN_FILE) in the operator's ``env`` instead.
ONLY_HERE = (
    "HOME", "JARS_DIR", "JOBS_DIR", "DAGS_DIR", "KAFKA_SSL_CA",
    "SCHEMA_REGISTRY_SSL_CA", "SCHEMA_REGISTRY_FALLBACK",
)  # fmt: skip


@dataclass(frozen=True)
class Submission:
    """What the cluster calls a driver, and the connection by which it is asked for."""

    conn_id: str
    id: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return asdict(self)

    def active(self) -> bool:
        """Whether the cluster says that the driver is waiting or running.

        Raises:
            RuntimeError: the cluster did not say.
        """
        operator = _operator(self.conn_id)
        context: Any = {}
        return bool(operator.is_job_active(operator.get_job_status(self.id, context)))

    def seen(self) -> bool | None:
        """As `active`; None if the cluster does not say."""
        try:
            return self.active()
        except Exception:
            # Whatever the provider meets: Kafka's group tells as well.
            log.warning("the cluster did not say whether the driver runs", exc_info=True)
            return None


def submit(target: SparkTarget, application: str) -> tuple[DriverProcess, Submission]:
    """Submit a driver to the cluster; returns once the cluster has accepted it.

    Raises:
        ConfigurationError: the provider refuses what the connection or a Spark property says.
        Unavailable: it has not, or ``spark-submit`` could not be run; says what was said.
        SubmissionUnclear: it may have; ``spark-submit`` did not say as what, or not so that it can
            be read.
    """
    from airflow.sdk.exceptions import AirflowException  # noqa: PLC0415

    from state_lib.drivers.identity import ID_VARIABLE
    from state_lib.drivers.process import DriverProcess

    driver = uuid.uuid4().hex
    settings = target.settings.as_environment()
    shipped = {name: value for name, value in settings.items() if _is_shipped(name)}
    env = {**shipped, **target.env, ID_VARIABLE: driver}
    operator = _operator(
        target.conn_id,
        application=application,
        conf=target.properties(),
        env_vars=env,
        name=f"holdfast-{target.app}",
        yarn_track_via_rm_api=target.master.startswith("yarn"),
        track_driver_via_k8s_api=target.master.startswith("k8s"),
    )
    context: Any = {}
    try:
        submitted = operator.submit_job(context)
    # These come after the submission: spark-submit has ended well and named no driver, or its
    # output is no text.
    except (RuntimeError, UnicodeError) as error:
        _end(operator)
        raise SubmissionUnclear(
            f"{target.master} may have taken the driver of {target.app!r}, or not: {error}. Look "
            f"at the cluster for {target.app!r}: if it runs there, kill it; then clear this task",
            app=target.app,
            master=target.master,
        ) from error
    except (AirflowException, OSError) as error:
        raise Unavailable(
            f"{target.master} did not take the driver of {target.app!r}: {error}. Look at the "
            f"cluster, and at connection {target.conn_id!r}",
            app=target.app,
            master=target.master,
        ) from error
    except ValueError as error:
        raise refused(target.conn_id, error) from error
    process = DriverProcess(driver, target.app, target.master, 0, "", int(time.time() * 1000))
    return process, Submission(target.conn_id, str(submitted))


def _end(operator: SparkSubmitOperator) -> None:
    """End a ``spark-submit`` that nobody reads any more."""
    hook = operator._hook  # noqa: SLF001
    submitting = None if hook is None else hook._submit_sp  # noqa: SLF001 - `on_kill` asks the cluster
    if submitting is not None:
        submitting.kill()
        submitting.communicate()


def _is_shipped(variable: str) -> bool:
    from state_lib.config import PREFIX, is_secret

    name = variable.removeprefix(PREFIX)
    here = name in ONLY_HERE or name.endswith("_FILE")
    return not here and not is_secret(name.lower()) and not variable.startswith(AIRFLOWS)


def _operator(conn_id: str, **given: Any) -> SparkSubmitOperator:
    """The provider's operator, for its methods alone; it belongs to no DAG."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    return SparkSubmitOperator(task_id="holdfast", conn_id=conn_id, **given)
