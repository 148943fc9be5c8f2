"""What Spark's executors do with a task's rows: decode, merge, run processors, commit.

They connect to state hosts and to a Schema Registry, never to a broker. Nothing here imports a
server or a driver's code.
"""
