"""What goes into the wheel."""

import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules

from pyspark.sql.datasource import DataSource

from holdfast_airflow import get_provider_info

ROOT = Path(__file__).parents[2]


def test_only_our_packages_are_shipped() -> None:
    """jobs/ and dags/ belong to a deployment, and everybody has folders of these names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    shipped = {Path(package).name for package in wheel["packages"]}
    assert shipped == {"state_lib", "holdfast_airflow", "pyspark_holdfast"}


def test_airflow_finds_the_provider() -> None:
    (found,) = entry_points(group="apache_airflow_provider", module="holdfast_airflow")
    assert found.load() is get_provider_info
    assert get_provider_info()["package-name"] == "holdfast"


def test_spark_finds_the_data_source() -> None:
    """As Spark's worker does: by the names of packages, of which it imports all ``pyspark_*``."""
    (found,) = [one.name for one in iter_modules() if one.name == "pyspark_holdfast"]
    source = import_module(found).DefaultSource
    assert issubclass(source, DataSource)
    assert source.name() == "holdfast"


def test_what_the_provider_lists_is_there() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors", "triggers", "hooks"):
        modules = [name for entry in info[kind] for name in entry["python-modules"]]
        assert modules
        for name in modules:
            import_module(name)
    for link in (*info["extra-links"], *info["notifications"]):
        module, _, name = link.rpartition(".")
        assert hasattr(import_module(module), name), link


def test_locks_name_no_index() -> None:
    """Whoever installs chooses the index; an address of ours would leak and age."""
    for name in ("requirements.lock", "jars.lock"):
        lines = (ROOT / name).read_text().splitlines()
        code = [line for line in lines if not line.lstrip().startswith("#")]
        assert not [line for line in code if "://" in line or line.startswith("--index")]
