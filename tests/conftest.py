"""What holds for all tests."""

from hypothesis import settings

from tests.support import airflow_home

# A machine that does something else for a moment is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
airflow_home.settle()
