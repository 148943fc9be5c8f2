"""The stack's parts that need no broker."""

import configparser
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, PortInUse
from state_lib.processes import end
from state_lib.stack import java, supervisor
from state_lib.stack.broker import BrokerConfig
from state_lib.stack.logs import last_lines
from state_lib.stack.paths import SOCKET_PATH_BYTES, Paths
from state_lib.stack.ports import free_port, require_free
from state_lib.stack.program import Program
from state_lib.stack.programs import programs
from state_lib.stack.record import VARIABLE, Record


def test_a_taken_port_names_itself_its_holder_and_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortInUse) as taken:
            require_free("127.0.0.1", port, "HOLDFAST_KAFKA_PORT")
    for word in (str(port), "HOLDFAST_KAFKA_PORT", str(os.getpid())):
        assert word in taken.value.message
    require_free("127.0.0.1", free_port(), "HOLDFAST_KAFKA_PORT")


def test_a_long_home_gets_a_short_socket(tmp_path: Path) -> None:
    near, far = Paths(Path("/h")), Paths(tmp_path / ("x" * 120))
    assert near.socket == Path("/h/run/supervisor.sock")
    assert len(os.fsencode(far.socket)) <= SOCKET_PATH_BYTES
    assert far.socket != Paths(tmp_path / ("y" * 120)).socket


def test_wipe_spares_a_directory_that_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    paths = Paths(tmp_path)
    paths.create()
    with pytest.raises(ConfigurationError, match="not made by Holdfast"):
        paths.wipe()
    ours = Paths(tmp_path / "ours")
    ours.create()
    ours.wipe()
    assert not ours.home.exists()


def test_supervisors_configuration_survives_odd_paths(tmp_path: Path) -> None:
    home = tmp_path / "100% mine, with 'quotes'"
    program = Program(
        "kafka", 1, (), 3, lambda: ["/bin/echo", f"{home}/a b"], lambda: None, lambda _: True
    )
    parsed = configparser.RawConfigParser()
    parsed.read_string(supervisor.render(Paths(home), [program]))
    assert parsed["supervisord"]["logfile"].replace("%%", "%").startswith(str(home))
    command = parsed["program:kafka"]["command"].replace("%%", "%")
    assert shlex.split(command) == ["/bin/echo", f"{home}/a b"]
    assert parsed["program:kafka"]["autorestart"] == "true"


def test_services_are_our_own_broker_the_hosts_and_airflow() -> None:
    airflow = ["api-server", "scheduler", "dag-processor", "triggerer"]
    local = programs(Settings.load(kafka_port=4001, hosts="a=127.0.0.1:1/2"))
    assert [one.name for one in local] == ["kafka", "a", *(f"airflow-{name}" for name in airflow)]
    given = {"hosts": "a=127.0.0.1:1/2", "airflow": False}
    assert [one.name for one in programs(Settings.load(kafka_port=4001, **given))] == ["kafka", "a"]
    foreign = programs(Settings.load(bootstrap_servers="kafka:9092", **given))
    assert [one.name for one in foreign] == ["a"]


def test_broker_properties_can_be_overridden(tmp_path: Path) -> None:
    config = BrokerConfig(tmp_path, 1, 2, extra={"log.retention.ms": "5"})
    rendered = config.properties()
    assert rendered["auto.create.topics.enable"] == "false"
    assert rendered["log.retention.ms"] == "5"
    assert rendered["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"


@pytest.mark.parametrize(
    ("version", "modules", "reason"),
    [
        ("17.0.1", "java.base jdk.incubator.vector", None),
        ("25", "java.base jdk.incubator.vector", None),
        ("17.0.1", "java.base", "lacks"),
        ("11.0.2", "java.base jdk.incubator.vector", "Java 11"),
    ],
)
def test_java_is_judged_by_its_release_file(
    tmp_path: Path, version: str, modules: str, reason: str | None
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    found = java.unfit(tmp_path)
    assert found is None if reason is None else reason in (found or "")


def test_no_java_tells_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda: iter([tmp_path]))
    with pytest.raises(ConfigurationError, match="has no bin/java") as missing:
        java.java_home()
    assert str(tmp_path) in missing.value.message


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("".join(f"line {n}\n" for n in range(50_000)))
    assert last_lines(path, 2) == ["line 49998", "line 49999"]
    assert len(last_lines(path, 100_000)) == 50_000
    assert last_lines(path, 0) == []
    assert last_lines(tmp_path / "none.log", 3) == []


def test_only_marked_processes_are_ours(tmp_path: Path) -> None:
    mine, other = Record.new({}), Record.new({})
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, env={**os.environ, VARIABLE: mine.id}) as process:
        try:
            known = Record(mine.id, process.pid, {"kafka": [1, 2]})
            known.write(tmp_path / "stack.json")
            assert Record.read(tmp_path / "stack.json") == known
            assert known.supervisor() == psutil.Process(process.pid)
            reused = Record(other.id, process.pid, {})
            assert reused.supervisor() is None, "the same process id, but not our process"
            assert reused.processes() == []
            assert end(known.processes(), signal.SIGTERM, 10) == []
        finally:
            process.kill()
    assert known.supervisor() is None
    assert Record.read(tmp_path / "none.json") is None
