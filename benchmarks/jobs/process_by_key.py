"""The benchmarks' count by key as a processor of Spark's, by Holdfast."""

import os

import counting  # type: ignore[import-not-found]  # beside this file
from pyspark import cloudpickle

from state_lib import Application

cloudpickle.register_pickle_by_value(counting)  # executors have not this folder

app = Application(os.environ["BENCH_APP"], partitions=4)
rows = app.stream(os.environ["BENCH_TOPIC"], format="raw").select("key")
told = rows.groupBy("key").transformWithState(
    counting.Counting(), counting.RESULTS, "Update", "None", name="counts"
)
told.to(f"{app.id}-counted")

if __name__ == "__main__":
    app.run()
