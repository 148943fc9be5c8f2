"""Which docstrings are shown, on which page. mkdocstrings reads them without importing anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """A page of the reference.

    Attributes:
        title: its heading.
        about: whom it is for.
        modules: shown one below the other.
    """

    title: str
    about: str
    modules: tuple[str, ...]


PAGES = {
    "jobs": Page(
        "Jobs",
        "What a job declares, and what its loader is made of. A job imports what it needs from "
        "`state_lib`.",
        (
            "state_lib.application",
            "state_lib.spark.handle",
            "state_lib.streams",
            "state_lib.grouped",
            "state_lib.processors",
            "state_lib.aggregates",
            "state_lib.testing.driver",
            "state_lib.testing.topics",
            "state_lib.testing.views",
            "state_lib.loading",
            "state_lib.config",
            "state_lib.errors",
        ),
    ),
    "stores": Page(
        "Stores and serdes",
        "For backends of one's own, and for reading what stores and changelogs hold.",
        (
            "state_lib.stores.interfaces",
            "state_lib.stores.bytes_store",
            "state_lib.serdes.base",
            "state_lib.serdes.scalar",
            "state_lib.serdes.struct",
            "state_lib.keys",
        ),
    ),
    "clients": Page(
        "Clients",
        "For programs that query stores, take snapshots, or watch and stop drivers.",
        (
            "state_lib.client.query",
            "state_lib.client.snapshots",
            "state_lib.drivers.supervision",
            "state_lib.drivers.process",
            "state_lib.drivers.control",
        ),
    ),
    "checks": Page(
        "Checks and conditions",
        "Facts are gathered first and judged by pure functions.",
        (
            "state_lib.gathering.application",
            "state_lib.checks.judging",
            "state_lib.checks.verdict",
            "state_lib.checks.condition",
            "state_lib.checks.facts",
        ),
    ),
    "airflow": Page(
        "Airflow",
        "The functions that make an application's DAGs, and the operators, sensors, triggers, "
        "notifiers and hooks that those are made of.",
        (
            "holdfast_airflow.dags.stream",
            "holdfast_airflow.dags.load",
            "holdfast_airflow.dags.verify",
            "holdfast_airflow.dags.repair",
            "holdfast_airflow.dags.snapshots",
            "holdfast_airflow.dags.prune",
            "holdfast_airflow.dags.watch",
            "holdfast_airflow.dags.restore",
            "holdfast_airflow.dags.restore_by_hand",
            "holdfast_airflow.dags.savepoint",
            "holdfast_airflow.dags.verify_snapshots",
            "holdfast_airflow.dags.drill",
            "holdfast_airflow.dags.audit",
            "holdfast_airflow.dags.capacity",
            "holdfast_airflow.operators.stream",
            "holdfast_airflow.operators.stop",
            "holdfast_airflow.operators.load",
            "holdfast_airflow.operators.verify",
            "holdfast_airflow.operators.repair",
            "holdfast_airflow.operators.lost_topics",
            "holdfast_airflow.operators.snapshots",
            "holdfast_airflow.operators.prune",
            "holdfast_airflow.operators.restore_plan",
            "holdfast_airflow.operators.restore_approve",
            "holdfast_airflow.operators.restore_run",
            "holdfast_airflow.operators.restore_report",
            "holdfast_airflow.operators.past",
            "holdfast_airflow.operators.savepoint",
            "holdfast_airflow.operators.verify_snapshots",
            "holdfast_airflow.operators.approval",
            "holdfast_airflow.operators.tell",
            "holdfast_airflow.operators.drill",
            "holdfast_airflow.operators.audit",
            "holdfast_airflow.operators.capacity",
            "holdfast_airflow.operators.watch",
            "holdfast_airflow.operators.job",
            "holdfast_airflow.operators.work",
            "holdfast_airflow.sensors.base",
            "holdfast_airflow.sensors.host",
            "holdfast_airflow.sensors.driver",
            "holdfast_airflow.sensors.changelog",
            "holdfast_airflow.sensors.store",
            "holdfast_airflow.sensors.snapshot",
            "holdfast_airflow.sensors.disk",
            "holdfast_airflow.notifications.incident",
            "holdfast_airflow.notifications.log",
            "holdfast_airflow.triggers.condition",
            "holdfast_airflow.triggers.job",
            "holdfast_airflow.triggers.restore",
            "holdfast_airflow.triggers.resumed",
            "holdfast_airflow.triggers.snapshots",
            "holdfast_airflow.triggers.stream",
            "holdfast_airflow.triggers.stream_end",
            "holdfast_airflow.hooks.holdfast",
        ),
    ),
}


def page(name: str) -> str:
    """Directives for mkdocstrings."""
    found = PAGES[name]
    shown = "\n\n".join(f"::: {module}" for module in found.modules)
    return f"# {found.title}\n\n{found.about}\n\n{shown}\n"
