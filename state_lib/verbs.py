"""What is said of a verb that there is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from state_lib.errors import NoSuchVerb


class Verbs:
    """Something whose public methods are the verbs of a job.

    Another one is a mistake in the job: it is refused at its line, as a column that does not
    exist is, and a script that ends by it is not started again.
    """

    _CALLED: ClassVar[str]
    """What it is, in errors."""
    _INSTEAD: ClassVar[str]
    """What to write, where PySpark or Kafka Streams has that verb."""

    if not TYPE_CHECKING:  # with it, type checkers would accept any name

        def __getattr__(self, name: str) -> object:
            """Refuse it. What begins with an underscore is Python's or ours, and no verb."""
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            kind = type(self)
            public = [one for one in dir(kind) if one[0].islower()]
            verbs = [one for one in public if callable(getattr(kind, one))]
            raise NoSuchVerb(
                f"{self._CALLED} has no verb {name!r}; it has {verbs}. {self._INSTEAD}", name=name
            )
