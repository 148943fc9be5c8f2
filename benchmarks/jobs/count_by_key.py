"""The benchmarks' query: count records by key, as Kafka Streams' ``groupByKey().count()``."""

import os

from state_lib import Application, TimeWindows

topic = os.environ["BENCH_TOPIC"]
size = int(os.environ["BENCH_WINDOW_MS"])
retention = int(os.environ["BENCH_RETENTION_MS"])

app = Application(os.environ["BENCH_APP"], partitions=4)
grouped = app.stream(topic).group_by("key", "bytes")
if size:
    grouped = grouped.windowed_by(TimeWindows(size, grace=retention - size, retention=retention))
grouped.count("counts")

if __name__ == "__main__":
    app.run()
