"""A real Spark job on a broker with TLS, SCRAM and an authorizer: each process as its own user."""

from __future__ import annotations

import contextlib
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import psutil
import pytest
from pydantic import SecretStr

from state_lib.acls import rights
from state_lib.exits import EXIT_REFUSED
from state_lib.specs import Topology
from tests.chaos.check import check
from tests.chaos.cluster import JOB, Cluster, Driver
from tests.chaos.feed import create, feed
from tests.support.secured import MECHANISM, Secured, certificates, secured_broker

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
CORE = "c0ffee5ecret"
"""Found nowhere, whatever a page or a log makes of the quotes around it."""
SECRET = f"\"{CORE}'\\"
MOST_PAGES = 60
FIRST_PAGES = ("/jobs/", "/stages/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured") / "broker") as running:
        for name in ("driver", "host", "nobody"):
            running.user(name, SECRET)
        yield running


@pytest.fixture(scope="module")
def cluster(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its hosts log in as ``host``; a driver says who it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_FAILPOINTS", "")
        patch.setenv("HOLDFAST_FAILPOINTS_DIR", "")
        made = Cluster(
            tmp_path_factory.mktemp("chaos"),
            bootstrap_servers=secured.servers,
            replication_factor=1,
            kafka_security_protocol="SASL_SSL",
            kafka_sasl_mechanism=MECHANISM,
            kafka_sasl_username="host",
            kafka_sasl_password=SECRET,
            kafka_ssl_ca=secured.ca,
        )
        made.stack.up()
        try:
            yield made
        finally:
            made.stack.down()


def topology(app: str, topic: str) -> Topology:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHAOS_APP", app)
        patch.setenv("CHAOS_TOPIC", topic)
        found: Topology = runpy.run_path(str(JOB))["app"].topology
    return found


def test_a_job_with_exactly_its_rights_and_its_secret_nowhere(
    secured: Secured, cluster: Cluster, app: str
) -> None:
    topic, door = f"{app}-source", secured.broker.bootstrap
    create(door, topic)
    feed(door, topic, 0, 3000)
    declared = topology(app, topic)
    secured.grant("driver", rights(declared, "driver"))
    secured.grant("host", rights(declared, "host"))
    driver = cluster.driver(app, topic, kafka_sasl_username="driver")
    try:
        driver.wait_event("batch", timeout_s=240)
        feed(door, topic, 3000, 2000)
        plain = cluster.settings.model_copy(update={"bootstrap_servers": door})
        check(plain, app, topic, timeout_s=240)
        shown = pages(cluster.settings.spark_ui_port)
        commands = command_lines(driver)
    finally:
        code = driver.stop()
    assert code == 0, driver.log.read_text()[-2000:]
    assert [page for page, text in shown.items() if "KafkaScan" in text], sorted(shown)
    assert [page for page, text in shown.items() if CORE in text] == []
    assert [command for command in commands if CORE in command] == []
    logs = [driver.log, *(cluster.settings.home / "logs").glob("*.log")]
    assert [log for log in logs if CORE in log.read_text(errors="replace")] == []


def pages(port: int) -> dict[str, str]:
    """Spark's own pages and what its API tells: of each kind some, though thousands are linked."""
    base = f"http://127.0.0.1:{port}"
    seen: dict[str, str] = {}
    of_kind: Counter[str] = Counter()
    with httpx.Client(trust_env=False, timeout=60, follow_redirects=True) as client:
        (one,) = client.get(f"{base}/api/v1/applications").json()
        api = f"/api/v1/applications/{one['id']}"
        left = [*FIRST_PAGES, f"{api}/environment", f"{api}/sql?details=true&planDescription=true"]
        while left and len(seen) < MOST_PAGES:
            page = min(left, key=lambda link: of_kind[urlsplit(link).path])
            left.remove(page)
            if page in seen:
                continue
            of_kind[urlsplit(page).path] += 1
            seen[page] = client.get(base + page).text
            links = re.findall(r'href="([^"#]+)"', seen[page])
            found = [urljoin(base + page, link.replace("&amp;", "&")) for link in links]
            left += [x.removeprefix(base) for x in found if x.startswith(f"{base}/")]
    return seen


def command_lines(driver: Driver) -> list[str]:
    """Of the driver, its JVM and its workers."""
    own, found = psutil.Process(driver.process.pid), []
    for one in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie, too, has no command any more
            found.append(" ".join(one.cmdline()))
    return found


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ({"kafka_sasl_username": "nobody"}, "User:nobody may not describe topic"),
        ({"kafka_sasl_password": SecretStr("wrong")}, "did not let User:host in: "),
        ({"kafka_ssl_ca": "other"}, "certificate verify failed"),
    ],
    ids=["right", "password", "authority"],
)
def test_a_driver_that_is_refused_says_why_and_ends(
    cluster: Cluster, app: str, tmp_path: Path, login: dict[str, Any], said: str
) -> None:
    if "kafka_ssl_ca" in login:
        login = {"kafka_ssl_ca": tmp_path / "other.pem"}
        certificates(tmp_path, tmp_path / "other.pem")
    driver = cluster.driver(app, f"{app}-source", **login)
    assert driver.wait(120) == EXIT_REFUSED
    log = driver.log.read_text()
    assert "kafka-refused" in log
    assert said in log
    assert CORE not in log
