"""Drivers as processes: how they are launched, watched and stopped, and how they report.

What a driver does with batches and tasks is in `state_lib.driver`. Nothing here imports pyspark or
Airflow, so that both sides can use it.
"""
