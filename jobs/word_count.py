"""Counts words: the smallest application there is.

Reads lines of text from the topic ``lines``, keeps a count per word in the store ``counts``, and
writes every changed count to the topic ``word-counts``.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from state_lib import Application

app = Application("word_count", partitions=4)

(
    app.stream("lines", format="text")
    .select(F.explode(F.split(F.lower("value"), "[^a-z]+")).alias("word"))
    .where("word <> ''")
    .groupBy("word")
    .count("counts")
    .toStream()
    .to("word-counts")
)

if __name__ == "__main__":
    app.run()
