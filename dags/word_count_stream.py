"""Counts the words of the topic `lines`: `jobs/word_count.py`."""

from holdfast_airflow.dags import stream_dag

dag = stream_dag("word_count", tags=["tutorial"], doc_md=__doc__)
