"""Alarms and panels against what a state host exports: names, labels, and that they are PromQL."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from state_lib.changelog.log import KafkaLog
from state_lib.host.metrics import HostMetrics
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import parse_hosts
from state_lib.task import TaskContext
from tests.support.compose import DOCKER, environment, service, zone
from tests.support.promql import OF_THE_TARGET, exported, reads, rules

DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/holdfast.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PROMETHEUS = yaml.safe_load((DOCKER / "prometheus/prometheus.yaml").read_text())
CASES = yaml.safe_load((DOCKER / "prometheus/rules.test.yaml").read_text())


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What a host's own registry has, one that has no task yet."""
    kafka = Kafka({"bootstrap.servers": "127.0.0.1:1"})
    context = TaskContext(KafkaLog(kafka), "host-1", tmp_path_factory.mktemp("state"))
    metrics = HostMetrics()
    metrics.watch(TaskManager(context, [], 60.0))
    return exported(metrics.registry) | {"up": set()}


def check(text: str, known: dict[str, set[str]]) -> None:
    names, labels = reads(text)
    assert names
    assert names <= set(known), "no host exports this"
    together = set[str]().union(*(known[name] for name in names))
    assert labels <= together | OF_THE_TARGET


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alarm_reads_what_hosts_export(rule: dict[str, Any], known: dict[str, set[str]]) -> None:
    check(rule["expr"], known)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alarm_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["annotations"]) == {"summary", "next_step"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    kept = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    if kept:  # what an aggregation drops would be shown as nothing
        assert named <= {one.strip() for group in kept for one in group.split(",")}
    for command in re.findall(r"holdfast ([a-z]+)", rule["annotations"]["next_step"]):
        assert (DOCKER.parent / f"state_lib/cli/{command}.py").exists() or command in CLI


CLI = {"stores"}  # in state_lib/cli/query.py


def test_every_alarm_has_a_case_in_which_it_fires() -> None:
    cases = [case for test in CASES["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert fires == {rule["alert"] for rule in rules()}
    assert PROMETHEUS["rule_files"] == CASES["rule_files"] == ["rules.yaml"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_reads_what_hosts_export(panel: dict[str, Any], known: dict[str, set[str]]) -> None:
    for target in panel["targets"]:
        text = target["expr"].replace("$__rate_interval", "1m").replace("$app", ".*")
        assert "$" not in text
        check(text, known)
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = re.search(r"by \(([^)]*)\)", text)
        assert legend <= ({one.strip() for one in kept[1].split(",")} if kept else OF_THE_TARGET)


def test_panels_do_not_overlap_and_have_a_source() -> None:
    source = yaml.safe_load(
        (DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    )
    (only,) = source["datasources"]
    assert only["url"] == "http://prometheus:9090"
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert {panel["datasource"]["uid"] for panel in PANELS} == {only["uid"]}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_prometheus_asks_every_host_with_the_token() -> None:
    job = next(one for one in PROMETHEUS["scrape_configs"] if one["job_name"] == "holdfast-host")
    hosts = parse_hosts(environment("host-1")["HOLDFAST_HOSTS"])
    assert job["static_configs"] == [
        {"targets": [f"{at.host}:{at.http_port}"], "labels": {"host": at.id, "zone": zone(at.id)}}
        for at in hosts
    ]
    file = Path(job["authorization"]["credentials_file"])
    assert file.parent == Path("/run/secrets")
    assert file.name in service("prometheus")["secrets"]
    assert environment("host-1")["HOLDFAST_TOKEN_FILE"] == str(file)
