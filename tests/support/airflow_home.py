"""A home for Airflow that every test process has to itself; set before anything imports Airflow.

Airflow reads its configuration once, when it is first imported, and makes the folder then: without
this, a test would write to the user's own ``~/airflow``.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
AIRFLOW_BUNDLE = "dags-folder"
HOME = Path(tempfile.mkdtemp(prefix="holdfast-airflow-"))
SCRIPTED = ROOT / "tests" / "dags" / "scripted"
"""DAGs of tests, and a driver without Spark."""
_LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"
_BUNDLES = {AIRFLOW_BUNDLE: ROOT / "dags", "scripted": SCRIPTED}
CONFIGURATION = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
        [
            {"name": name, "classpath": _LOCAL, "kwargs": {"path": str(folder)}}
            for name, folder in _BUNDLES.items()
        ]
    ),
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "reader:viewer,boss:admin",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(HOME / "passwords.json"),
    "AIRFLOW__API_AUTH__JWT_SECRET": "of-tests-" * 8,
}


def settle() -> None:
    """Point this process and its children at `HOME`."""
    os.environ.update(CONFIGURATION)
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)


def migrate() -> None:
    """Make Airflow's tables."""
    from airflow.utils.db import initdb  # noqa: PLC0415 - only after `settle`

    initdb()
