"""The benchmarks' query: count records by key, as Kafka Streams' ``groupByKey().count()``."""

import os

from state_lib import Application, Materialized, TimeWindows

topic = os.environ["BENCH_TOPIC"]
size = int(os.environ["BENCH_WINDOW_MS"])
retention = int(os.environ["BENCH_RETENTION_MS"])

app = Application(os.environ["BENCH_APP"], partitions=4)
grouped = app.stream(topic, format="raw").groupBy("key")
if size:
    windows = TimeWindows(size, grace=retention - size)
    grouped.windowedBy(windows).count(Materialized("counts", retention=retention))
else:
    grouped.count("counts")

if __name__ == "__main__":
    app.run()
