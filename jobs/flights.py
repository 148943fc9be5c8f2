"""Every flight that left New York in 2013, as live state.

Reads the topic ``flights`` (one JSON object per flight, event time = scheduled departure) and
keeps two stores:

- ``departures_by_hour``: per origin and hour, how many flights left, how many were cancelled, and
  their delays in minutes;
- ``aircraft``: per tail number, flights and miles flown, and where the aircraft was last seen.

Every change goes to a topic as well, in the same transaction.
"""

from state_lib import Application, Json, TimeWindows, agg

app = Application("flights", partitions=4)

flights = app.stream(
    "flights",
    Json(
        "origin STRING NOT NULL, dest STRING NOT NULL, tailnum STRING, distance BIGINT NOT NULL, "
        "dep_delay BIGINT, departed BOOLEAN NOT NULL, scheduled BIGINT NOT NULL"
    ),
)

(
    flights.group_by("origin")
    .windowed_by(TimeWindows("1 hour", grace="24 hours", retention="400 days"))
    .aggregate(
        "departures_by_hour",
        departures=agg.count("nullif(departed, false)"),
        cancellations=agg.count("nullif(departed, true)"),
        delay_sum=agg.sum("dep_delay"),
        delay_max=agg.max("dep_delay"),
    )
    .to("departures-by-hour")
)

(
    flights.group_by("tailnum")
    .aggregate(
        "aircraft",
        flights=agg.count(),
        miles=agg.sum("distance"),
        last_seen_at=agg.last("dest"),
        last_seen=agg.last("scheduled", "int64"),
    )
    .to("aircraft-seen")
)

if __name__ == "__main__":
    app.run()
