"""``holdfast new``, ``config`` and ``pack``: what they write."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, InvalidName
from state_lib.origins import MASK, origins
from state_lib.project import write_project
from state_lib.project.pack import pack
from state_lib.submit import python_of_executors, submit_conf


def holdfast(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from state_lib.cli import main; main()", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_project_passes_its_own_tests(tmp_path: Path) -> None:
    written = write_project("page_views", tmp_path / "views")
    assert Path("jobs/page_views.py") in written
    assert not [p for p in (tmp_path / "views").rglob("*") if "$" in p.name or "NAME" in p.name]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        command, cwd=tmp_path / "views", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_new_project_is_in_the_style_of_ours(tmp_path: Path) -> None:
    write_project("page_views", tmp_path)
    ruff = Path(sys.executable).parent / "ruff"
    for how in (["check", "--select", "E,F,I,UP,B", "--line-length", "100"], ["format", "--check"]):
        command = [str(ruff), *how, "--isolated", str(tmp_path)]
        if how[0] == "format":
            command += ["--line-length", "100"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "mine.py").write_text("precious")
    with pytest.raises(ConfigurationError, match=r"jobs/mine\.py already: nothing was written"):
        write_project("mine", tmp_path)
    assert (tmp_path / "jobs" / "mine.py").read_text() == "precious"
    assert [p.name for p in tmp_path.rglob("*")] == ["jobs", "mine.py"]


@pytest.mark.parametrize(
    "name",
    [
        *("../up", "Page", "1st", "class", "", "a-b", "a" * 61),
        *("json", "orjson", "airflow", "state_lib", "pyspark_holdfast"),  # would hide a module
        *("views_load", "views_audit"),  # would be no stream
        "kafka",  # is a service already
    ],
)
def test_names_that_cannot_be_files_and_applications(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidName, match="project name"):
        write_project(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_new_says_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    done = holdfast("new", "shop", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote shop/jobs/shop.py" in done.stdout
    assert "holdfast up" in done.stdout
    again = holdfast("new", "shop", cwd=tmp_path)
    assert again.returncode == 1
    assert "already" in again.stderr


def test_origins_follow_the_order_of_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("holdfast.toml").write_text(
        '[stack]\nkafka_heap = "2g"\nlog_level = "ERROR"\n[kafka]\nsocket.timeout.ms = 5000\n'
    )
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("HOLDFAST_TOKEN", "secret")
    settings = Settings.load(home=tmp_path / "flagged")
    found = {one.name: one for one in origins(settings, ["home"])}
    assert (found["home"].origin, found["home"].value) == ("flag", str(tmp_path / "flagged"))
    assert (found["log_level"].origin, found["log_level"].value) == ("environment", "DEBUG")
    assert (found["kafka_heap"].origin, found["kafka_heap"].value) == ("file", "2g")
    assert found["kafka_port"].origin == "default"
    timeout = found["socket.timeout.ms"]
    assert (timeout.section, timeout.value, timeout.origin) == ("kafka", "5000", "file")
    assert found["spark_properties"].origin == "default"
    assert (found["token"].value, found["token"].variable) == (MASK, "HOLDFAST_TOKEN")
    names = set(Settings.model_fields) - {"kafka_properties"}
    assert set(found) == names | {"socket.timeout.ms"}


def test_config_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "very-secret")
    done = holdfast("--home", str(tmp_path / "x"), "config", "--json", cwd=tmp_path)
    assert "very-secret" not in done.stdout
    found = json.loads(done.stdout)
    assert list(found) == ["kafka", "host", "driver", "stack"]
    assert found["stack"]["home"] == {
        "section": "stack",
        "name": "home",
        "value": str(tmp_path / "x"),
        "origin": "flag",
        "variable": "HOLDFAST_HOME",
        "description": Settings.model_fields["home"].description,
    }
    table = holdfast("config", "--given", cwd=tmp_path)
    assert "HOLDFAST_TOKEN" in table.stdout
    assert "no holdfast.toml here" in table.stdout
    assert "[host]" in table.stdout


def test_a_project_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "views"
    target.mkdir(parents=True)
    (target / "tests").write_text("a file where a folder must be")
    with pytest.raises(ConfigurationError, match=r"cannot write .*tests"):
        write_project("page_views", target)
    assert [p.name for p in target.iterdir()] == ["tests"]


def test_an_archive_has_what_executors_import(tmp_path: Path) -> None:
    archive = tmp_path / "executors.tar.gz"
    count = pack(archive, ["sortedcontainers"])
    assert count > 10
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    for wanted in (
        *("state_lib/spark/rows.py", "pyspark_holdfast/__init__.py"),
        *("pyarrow/__init__.py", "orjson/__init__.py", "rocksdict/__init__.py"),
        *("fastavro/__init__.py", "confluent_kafka/schema_registry/__init__.py"),
        *("httpx2/__init__.py", "authlib/__init__.py", "cachetools/__init__.py"),
    ):
        assert wanted in names
    assert any(name.startswith("sortedcontainers/") for name in names)
    assert not [n for n in names if n.startswith(("pyspark/", "airflow/")) or "__pycache__" in n]


def test_what_is_not_installed_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'nosuch-thing' is not installed"):
        pack(tmp_path / "x.tar.gz", ["nosuch_thing"])
    assert not list(tmp_path.iterdir())


def test_executors_elsewhere_get_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "executors.tar.gz"
    settings = Settings.load(executor_archive=archive, spark_master="spark://127.0.0.1:7077")
    with pytest.raises(ConfigurationError, match="holdfast pack"):
        submit_conf(settings)
    archive.write_bytes(b"")
    conf = submit_conf(settings)
    assert conf["spark.archives"] == f"{archive}#holdfast_packages"
    assert conf["spark.executorEnv.PYTHONPATH"] == "./holdfast_packages"
    assert python_of_executors(settings) == settings.executor_python
    assert "spark.archives" not in submit_conf(settings, "local[2,4]")
    assert python_of_executors(settings, "local[2,4]") == sys.executable
