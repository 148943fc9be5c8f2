"""Every flight that left New York in 2013, as live state.

Reads the topic ``flights`` (one JSON object per flight, event time = scheduled departure) and
keeps two stores:

- ``departures_by_hour``: per origin and hour, how many flights left, how many were cancelled, and
  their delays in minutes;
- ``aircraft``: per tail number, flights and miles flown, and where the aircraft was last seen.

Every change goes to a topic as well, in the same transaction.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from state_lib import Application, Materialized, TimeWindows, agg

FLIGHT = """
    origin STRING NOT NULL, dest STRING NOT NULL, tailnum STRING, distance BIGINT NOT NULL,
    dep_delay BIGINT, departed BOOLEAN NOT NULL, scheduled BIGINT NOT NULL
"""

app = Application("flights", partitions=4)

flights = app.stream("flights", FLIGHT)

(
    flights.groupBy("origin")
    .windowedBy(TimeWindows("1 hour", grace="24 hours"))
    .agg(
        Materialized("departures_by_hour", retention="400 days"),
        departures=agg.count_if("departed"),
        cancellations=agg.count_if(~F.col("departed")),
        delay_sum=agg.sum("dep_delay"),
        delay_max=agg.max("dep_delay"),
    )
    .toStream()
    .to("departures-by-hour")
)

(
    flights.groupBy("tailnum")
    .agg(
        Materialized("aircraft"),
        flights=agg.count(),
        miles=agg.sum("distance"),
        last_seen_at=agg.last("dest"),
        last_seen=agg.last("scheduled"),
    )
    .toStream()
    .to("aircraft-seen")
)

if __name__ == "__main__":
    app.run()
