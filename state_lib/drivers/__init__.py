"""Drivers seen from outside and from inside: launched, watched, asked to stop, judged.

Nothing here imports pyspark or Airflow, so that both sides can use it.
"""
