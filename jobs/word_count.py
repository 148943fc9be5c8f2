"""Counts words: the smallest application there is.

Reads lines of text from the topic ``lines``, keeps a count per word in the store ``counts``, and
writes every changed count to the topic ``word-counts``.
"""

from state_lib import Application, Text

app = Application("word_count", partitions=4)

(
    app.stream("lines", Text())
    .explode("word", "split(lower(value), '[^a-z]+')")
    .where("word <> ''")
    .group_by("word")
    .count("counts")
    .to("word-counts")
)

if __name__ == "__main__":
    app.run()
