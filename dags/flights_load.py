"""Every flight that left New York in 2013, published to the topic `flights`."""

from holdfast_airflow.dags import load_dag

dag = load_dag("flights", tags=["flights"], doc_md=__doc__)
