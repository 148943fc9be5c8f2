"""Drivers as processes: launched, watched, asked to stop, judged; by others and by themselves.

What a driver does with batches and tasks is in `state_lib.driver`. Nothing here imports pyspark or
Airflow, so that both sides can use it.
"""
