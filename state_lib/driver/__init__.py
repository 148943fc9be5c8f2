"""What a driver does beside Spark: claims, records of batches, stream time, positions of tasks.

Nothing here imports PySpark. How drivers are launched and watched is in `state_lib.drivers`.
"""
