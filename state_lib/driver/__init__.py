"""What a driver does beside Spark: claims, records of batches, the clock, what stands where.

Nothing here imports PySpark. How drivers are launched and watched is in `state_lib.drivers`.
"""
