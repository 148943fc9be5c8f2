"""The Airflow connections that the stack's DAGs name."""

from __future__ import annotations

from dataclasses import dataclass, field

from state_lib.config import Settings


@dataclass(frozen=True)
class Wanted:
    """A connection to create if there is none of its id.

    It is a row of Airflow's database and not a variable of the environment: that would win over
    what a person changes on Airflow's page.
    """

    id: str
    kind: str
    host: str
    description: str
    extra: dict[str, str] = field(default_factory=dict)


def wanted(settings: Settings) -> tuple[Wanted, ...]:
    """What the DAGs of a local stack need."""
    return (
        Wanted(
            id="spark_default",
            kind="spark",
            host=settings.spark_master,
            description="Where streams run: change the host to another master to move them.",
            extra={"deploy-mode": "client", "spark-binary": "spark-submit"},
        ),
    )
