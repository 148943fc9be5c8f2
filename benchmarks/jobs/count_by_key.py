"""The benchmark query: count records by key, as Kafka Streams' ``groupByKey().count()``."""

import os

from state_lib import Application

name = os.environ["BENCH_TOPIC"]
app = Application(f"bench-{name}", partitions=4)
app.stream(name).group_by("key", "bytes").count("counts")

if __name__ == "__main__":
    app.run()
