"""Airflow of the local stack: its home, its configuration, its database, its four processes.

Everything that Airflow is told stands in one file, ``airflow.cfg`` below the stack's home, so that
``AIRFLOW_HOME=.holdfast/airflow airflow …`` on a terminal sees the same as the stack's processes.
"""

from state_lib.stack.airflow.config import environment
from state_lib.stack.airflow.database import prepare
from state_lib.stack.airflow.home import AirflowHome, Login, login
from state_lib.stack.airflow.programs import API_SERVER, PRIORITY, programs

__all__ = [
    "API_SERVER",
    "PRIORITY",
    "AirflowHome",
    "Login",
    "environment",
    "login",
    "prepare",
    "programs",
]
