"""The application that chaos tests kill: counts and sums per key and per hour, with an output.

Its events carry everything that makes exactly-once hard to fake: rows that are late by design, null
keys, records that are not JSON, and keys that come from several source partitions.
"""

import os

from state_lib import Application, Json, TimeWindows, agg

app = Application(os.environ["CHAOS_APP"], partitions=4)
events = app.stream(os.environ["CHAOS_TOPIC"], Json("k STRING, x BIGINT NOT NULL"))
key = os.environ.get("CHAOS_KEY", "k")
events.group_by(key).aggregate(
    "totals", n=agg.count(), total=agg.sum("x"), seen=agg.last("x", "int64")
).to(f"{app.id}-out")
events.group_by("k").windowed_by(
    TimeWindows("1 hour", grace="30 minutes", retention="400 days")
).count("hourly")

if __name__ == "__main__":
    app.run()
