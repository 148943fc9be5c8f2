"""Pages inside Airflow, behind its log-in."""
