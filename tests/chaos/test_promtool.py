"""Prometheus itself: it starts as compose says, and rules fire where `rules.test.yaml` says so.

It is in Debian's package `prometheus`, which is fetched and unpacked, not installed.
"""

from __future__ import annotations

import shutil
import subprocess
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import yaml

from state_lib.stack.ports import free_port
from tests.support.compose import DOCKER, service
from tests.support.waiting import until

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not (shutil.which("promtool") or shutil.which("apt-get")),
        reason="needs promtool, or apt-get",
    ),
]


class Programs(NamedTuple):
    """Their paths."""

    promtool: str
    prometheus: str


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The machine's, or Debian's, with lists and cache of its own: no root is needed."""
    if (found := shutil.which("promtool")) and (server := shutil.which("prometheus")):
        return Programs(found, server)
    tmp_path, own = tmp_path_factory.mktemp("debian"), list[str]()
    for kind in ("State", "State::Lists", "Cache"):
        folder = tmp_path / kind.replace("::", "-").lower()
        (folder / "partial").mkdir(parents=True)
        own += ["-o", f"Dir::{kind}={folder}"]
    own += ["-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User="]
    run("apt-get", *own, "update", cwd=tmp_path)
    run("apt-get", *own, "download", "prometheus", cwd=tmp_path)
    (package,) = tmp_path.glob("prometheus_*.deb")
    run("dpkg-deb", "--extract", package, tmp_path / "unpacked", cwd=tmp_path)
    unpacked = tmp_path / "unpacked" / "usr" / "bin"
    return Programs(str(unpacked / "promtool"), str(unpacked / "prometheus"))


@pytest.fixture
def promtool(programs: Programs) -> str:
    return programs.promtool


def test_prometheus_takes_its_configuration(promtool: str, tmp_path: Path) -> None:
    """Without the files that it names: the token is there in the container alone."""
    check = (promtool, "check", "config", "--syntax-only", "prometheus.yaml")
    folder = DOCKER / "prometheus"
    assert "SUCCESS" in run(*check, cwd=folder)
    text = (folder / "prometheus.yaml").read_text()
    (tmp_path / "prometheus.yaml").write_text(text.replace("static_configs", "static_config"))
    with pytest.raises(AssertionError, match="static_config not found"):
        run(*check, cwd=tmp_path)


def test_alarms_fire_where_their_cases_say_so(promtool: str, tmp_path: Path) -> None:
    folder = DOCKER / "prometheus"
    assert "rules found" in run(promtool, "check", "rules", "rules.yaml", cwd=folder)
    assert "SUCCESS" in run(promtool, "test", "rules", "rules.test.yaml", cwd=folder)
    mute = tmp_path / "mute"
    shutil.copytree(folder, mute)
    text = (mute / "rules.yaml").read_text()
    (mute / "rules.yaml").write_text(text.replace('{job="holdfast-host"} == 0', "{} == 2"))
    with pytest.raises(AssertionError, match="HoldfastHostDown"):
        run(promtool, "test", "rules", "rules.test.yaml", cwd=mute)


def test_it_starts_as_compose_says_and_has_all_rules(programs: Programs, tmp_path: Path) -> None:
    """The server of Debian's package, which is older than the image: what it is given fits both."""
    folder = shutil.copytree(DOCKER / "prometheus", tmp_path / "etc")
    rules = yaml.safe_load((folder / "rules.yaml").read_text())
    wanted = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    port = free_port()
    given = [
        word.replace("=/etc/prometheus/", f"={folder}/").replace("=/prometheus", f"={tmp_path}/db")
        for word in service("prometheus")["command"]
    ]
    command = [programs.prometheus, *given]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5) as http:

            def ready() -> bool:
                assert process.poll() is None, (tmp_path / "log").read_text()
                try:
                    return http.get("/-/ready").status_code == HTTPStatus.OK
                except httpx.TransportError:
                    return False

            until(ready, 60)
            groups = http.get("/api/v1/rules").json()["data"]["groups"]
            assert {rule["name"] for group in groups for rule in group["rules"]} == wanted
    finally:
        process.terminate()
        process.wait(30)
