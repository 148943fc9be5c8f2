"""PromQL as data: which metrics an expression reads, and which labels it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import promql_parser
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from promql_parser import AggregateExpr, BinaryExpr, Expr, VectorSelector

from tests.support.compose import DOCKER

OF_THE_TARGET = frozenset({"job", "instance", "host", "zone"})
"""Labels that Prometheus adds (docker/prometheus/prometheus.yaml)."""


def rules() -> list[dict[str, str]]:
    """All alarms."""
    groups = yaml.safe_load((DOCKER / "prometheus" / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def reads(text: str) -> tuple[set[str], set[str]]:
    """Metrics that an expression reads, and the labels that it names.

    Raises:
        ValueError: it is no PromQL.
    """
    names: set[str] = set()
    labels: set[str] = set()

    def look(one: Expr) -> None:
        if isinstance(one, VectorSelector):
            names.add(one.name or "")
            labels.update(matcher.name for matcher in one.matchers.matchers)
        elif isinstance(one, AggregateExpr) and one.modifier:
            labels.update(one.modifier.labels)
        elif isinstance(one, BinaryExpr) and one.modifier and one.modifier.matching:
            labels.update(one.modifier.matching.labels)

    promql_parser.walk(promql_parser.parse(text), look)
    return names, labels


def exported(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Names of all samples that a registry can have, and their labels; none need be there yet."""
    found: dict[str, set[str]] = defaultdict(set)
    declared = {
        name: set(getattr(collector, "_labelnames", ()))
        for name, collector in registry._names_to_collectors.items()
    }
    for metric in registry.collect():
        labels = set(getattr(metric, "_labelnames", ())) | declared.get(metric.name, set())
        for name in _samples(metric):
            found[name] |= labels | ({"le"} if name.endswith("_bucket") else set())
    return dict(found)


def _samples(metric: Metric) -> Iterator[str]:
    if metric.type == "histogram":
        yield from (f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
    elif metric.type == "counter":
        yield f"{metric.name}_total"
    else:
        yield metric.name
