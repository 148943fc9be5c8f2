"""docker/compose.yaml, as data."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FILE = DOCKER / "compose.yaml"
IMAGE = DOCKER / "image"
BROKERS = ("kafka-1", "kafka-2", "kafka-3")
HOSTS = ("host-1", "host-2", "host-3")
SPARK_WORKERS = ("spark-worker-1", "spark-worker-2")
SPARK = ("spark-master", *SPARK_WORKERS)
AIRFLOW = tuple(
    f"airflow-{one}" for one in ("migrate", "api-server", "scheduler", "dag-processor", "triggerer")
)
ALL = (
    *(*BROKERS, *HOSTS, *SPARK, *AIRFLOW),
    *("objects", "objects-bucket", "postgres", "prometheus", "grafana"),
)
ONCE = ("airflow-migrate", "objects-bucket")
"""They do their work and end."""
OURS = "holdfast:0.1.0"
Service = dict[str, Any]


@cache
def compose() -> dict[str, Any]:
    """The whole file."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def service(name: str) -> Service:
    """One service, its anchors resolved."""
    found: Service = compose()["services"][name]
    return found


def of_image(name: str = OURS) -> list[str]:
    """The services that run an image."""
    return [one for one, given in compose()["services"].items() if given["image"] == name]


def environment(name: str) -> dict[str, str]:
    """Variables of a service."""
    found: dict[str, str] = service(name).get("environment", {})
    return found


def image_environment() -> dict[str, str]:
    """What the image sets for all that run it (the ENV of its last stage)."""
    last = (IMAGE / "Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    lines = re.findall(r"^ENV (.*)$", last, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


def zone(name: str) -> str:
    """The zone that a service is labelled with."""
    found: str = service(name)["labels"]["holdfast.zone"]
    return found
