"""What a state host exports for Prometheus, as a page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from docs.generate.host import host_of_nobody

INTRO = """# Metrics of a state host

At `/metrics` of each host, for Prometheus, in Kafka Streams' words. A task is `<app>/<partition>`.
[Rules](../../docker/prometheus/rules.yaml) are made of them; the
[runbook](../runbook/README.md#rules-of-prometheus) has a page for each.

| metric | type | labels | what it is |
|---|---|---|---|
"""


def page() -> str:
    """A table of all metrics, by name."""
    registry = host_of_nobody()[1].registry
    rows = [_row(registry, metric) for metric in registry.collect()]
    return INTRO + "\n".join(sorted(rows)) + "\n"


def _row(registry: CollectorRegistry, metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    labels = ", ".join(f"`{one}`" for one in _labels(registry, metric))
    return f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |"


def _labels(registry: CollectorRegistry, metric: Metric) -> tuple[str, ...]:
    """The library shows labels with samples only, and there are none yet."""
    for one in (metric, registry._names_to_collectors.get(metric.name)):  # noqa: SLF001
        if found := getattr(one, "_labelnames", ()):
            return tuple(found)
    return ()
