"""Departures by hour and every aircraft's miles, as live state: `jobs/flights.py`."""

from holdfast_airflow.dags import stream_dag

dag = stream_dag("flights", tags=["flights"], doc_md=__doc__)
