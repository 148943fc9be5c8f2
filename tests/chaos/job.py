"""The application that chaos tests kill: counts and sums per key and per hour, with an output.

Its events carry everything that makes exactly-once hard to fake: rows that are late by design, null
keys, records that are not JSON, and keys that come from several source partitions.
"""

import os

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from state_lib import Application, Materialized, TimeWindows, agg

app = Application(os.environ["CHAOS_APP"], partitions=4)
events = app.stream(os.environ["CHAOS_TOPIC"], "k STRING, x BIGINT NOT NULL")
key = F.expr(os.environ.get("CHAOS_KEY", "k"))
(
    events.groupBy(key)
    .agg(Materialized("totals"), n=agg.count(), total=agg.sum("x"), seen=agg.last("x"))
    .toStream()
    .to(f"{app.id}-out")
)
hours = TimeWindows("1 hour", grace="30 minutes")
events.groupBy("k").windowedBy(hours).count(Materialized("hourly", retention="400 days"))

if __name__ == "__main__":
    app.run()
