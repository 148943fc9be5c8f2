"""What a job writes: an application, and the streams that it reads.

>>> from pyspark.sql import functions as F
>>> from state_lib import Application
>>> app = Application("word_count", partitions=4)
>>> words = F.explode(F.split(F.lower("value"), "[^a-z]+"))
>>> lines = app.stream("lines", format="text")
>>> counts = lines.select(words.alias("word")).where("word <> ''").groupBy("word").count("counts")
>>> counts.toStream().to("word-counts")
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from state_lib.declaration import Declaration, Format, Source
from state_lib.errors import ConfigurationError
from state_lib.names import check_name
from state_lib.refused import tell_refusals
from state_lib.streams import KStream
from state_lib.topology_text import described
from state_lib.verbs import Verbs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from state_lib.spark.handle import RunningApplication
    from state_lib.spark.opened import Opened


class Application(Declaration, Verbs):
    """An id, a partition count, and what `stream` and the verbs after it declare.

    Every step is resolved by Spark as it is declared, on no rows: what Spark cannot resolve raises
    at its line. Whatever imports a job opens a session for that. A script that ends by such an
    error has exit code 5 (`state_lib.exits`).

    Args:
        app_id: names topics, directories and metrics.
        spark: the session to use, which is never stopped; one of its own where none is given, or
            that of this process, if it has one.
        partitions: of every changelog; the number of tasks. It cannot be changed later.

    Raises:
        ConfigurationError: a setting of this process is wrong, or the session is none that can run
            an application.
    """

    _CALLED = "an application"
    _INSTEAD = (
        "Every topic is read by stream('topic', schema), and its columns by the verbs of what that "
        "gives. A table is what a verb of a grouped stream keeps: "
        "stream(...).groupBy('key').agg('store', ...). An output is begun on those: "
        "where(...), toStream().to('topic')"
    )

    def __init__(self, app_id: str, spark: SparkSession | None = None, partitions: int = 4) -> None:
        runs = spark is None and sys._getframe(1).f_globals.get("__name__") == "__main__"  # noqa: SLF001
        tell_refusals(hears=runs)
        super().__init__(app_id, partitions)
        self._sources: dict[str, Source] = {}
        # Declarations are imported without PySpark; whoever makes one has it.
        from state_lib.spark.opened import Opened  # noqa: PLC0415

        self._opened: Opened = Opened(app_id, spark, runs=runs)
        self._opened.session()

    def stream(
        self,
        topic: str,
        schema: StructType | str | Path | None = None,
        format: Format | None = None,  # noqa: A002
        timestamp: str | None = None,
    ) -> KStream:
        """Read a topic.

        Args:
            topic: its name.
            schema: the columns of JSON objects, as a StructType or as DDL. ``NOT NULL`` columns are
                required: a record without one is a dead letter, as is one that is not JSON or has
                another type in a column. (A number in a ``STRING`` column is its text, as Spark
                reads it.) For Avro the schema to read by, as JSON or as the ``Path`` of a file;
                without one the newest of ``<topic>-value`` in the Schema Registry, at this moment;
                where the last driver has left a batch half done, the one that it was read by.
            format: ``json`` (with a schema), ``avro`` (by the schema registered under the id in
                each record), ``text`` (column ``value`` is UTF-8 text; other bytes, and nulls, are
                undecodable) or ``raw`` (``key`` and ``value`` are binary).
            timestamp: the column of ``schema`` that is event time, a ``TIMESTAMP``, or a ``BIGINT``
                of ms since 1970; without one it is the record's own timestamp. A record in which it
                is null, or before 1970, is a dead letter.

        Raises:
            ConfigurationError: it is read in another format, or by another event time, already. A
                record that one of them can read and the other cannot would be a dead letter and
                counted at once. No schema is registered for a topic in Avro.
            RegistryAway: the Schema Registry was to be asked, and does not answer.
        """
        from state_lib.spark.sources import ddl_of, source_rows, time_column  # noqa: PLC0415

        check_name("topic", topic)
        chosen: Format = format or ("raw" if schema is None else "json")
        spark = self._opened.session()
        ddl = reader = ""
        if chosen == "avro":
            from state_lib.executor.avro.schema import columns_of  # noqa: PLC0415 - as above
            from state_lib.spark.avro.declaring import reader_of  # noqa: PLC0415 - heavy

            known = self._sources.get(topic)
            if schema is None and known is not None and known.reader:
                reader = known.reader  # the newest schema may be a later one by now
            else:
                reader = reader_of(topic, schema, lambda: self._opened.settings, self.id)
            ddl = ddl_of(columns_of(reader))
        elif chosen not in ("json", "text", "raw") or (chosen == "json") != (schema is not None):
            raise ConfigurationError(
                f"topic {topic!r}: format={chosen!r} with schema={schema!r} is none that is read. "
                "Give a schema for JSON, format='avro' with or without one, or format='text' or "
                "format='raw' without one",
                topic=topic,
            )
        elif isinstance(schema, Path):
            raise ConfigurationError(
                f"topic {topic!r}: files hold schemas of Avro: write format='avro' as well",
                topic=topic,
            )
        elif schema is not None:
            ddl = ddl_of(schema)
        time = "" if timestamp is None else time_column(topic, ddl, timestamp)
        source = Source(topic, chosen, ddl, time, reader)
        known = self._sources.get(topic, source)
        if known != source:
            raise ConfigurationError(
                f"application {self.id!r} reads topic {topic!r} as {known} already, and cannot "
                f"read it as {source} as well: read it as format='raw' and decode it in "
                "expressions, or use another application",
                topic=topic,
            )
        stream = KStream(self, source, (), source_rows(spark, source))
        self._sources[topic] = source
        return stream

    def describe(self) -> None:
        """Print the topology, as Kafka Streams' ``Topology.describe()`` does."""
        sys.stdout.write(described(self))

    def run(self) -> None:
        """Run the stream until it is asked to stop: the last line of a job.

        It ends the process with an exit code for its supervisor, and handles signals: call it in
        the main thread. In a notebook, or beside other work, call `start`.
        """
        from state_lib.spark import run  # noqa: PLC0415 - as above

        run(self, self._opened)

    def start(self) -> RunningApplication:
        """Run the stream in this process, beside what else it does.

        Returns:
            What runs, by the words of Spark's `StreamingQuery`: ``awaitTermination()``, ``stop()``,
            ``isActive``, ``lastProgress``, ``exception()``.

        Raises:
            ConfigurationError: the application runs already; a setting is wrong, or the session
                cannot run a stream.
            Unavailable: the session was stopped.
        """
        from state_lib.spark.handle import RunningApplication  # noqa: PLC0415 - as above

        return RunningApplication(self, self._opened)
