"""The fixture that comes with the package."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import state_lib

HEAVY = {"airflow", "confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark", "rocksdict"}


def test_pytest_finds_it() -> None:
    (found,) = entry_points(group="pytest11", name="holdfast")
    assert found.value == "state_lib.pytest_plugin"
    assert callable(found.load().spark)


def test_it_imports_nothing_that_is_heavy() -> None:
    """It is imported by every run of pytest in an environment that has Holdfast."""
    code = f"import sys, state_lib.pytest_plugin; print({HEAVY!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_it_needs_neither_servers_nor_airflow() -> None:
    """As ``pip install holdfast[spark]`` leaves them out."""
    blocked = "airflow", "fastapi", "prometheus_client", "supervisor", "uvicorn"
    code = f"import sys; sys.modules |= dict.fromkeys({blocked!r}); import state_lib.testing"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_driver_is_a_public_name() -> None:
    from state_lib.testing import TopologyTestDriver  # noqa: PLC0415 - it is what is compared

    assert state_lib.TopologyTestDriver is TopologyTestDriver
    with pytest.raises(AttributeError, match="has no attribute 'Toplogy'"):
        state_lib.Toplogy  # type: ignore[attr-defined]  # noqa: B018
