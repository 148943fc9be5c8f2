"""A Python worker that ends, and one that does not. No JVM."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import structlog
from pyspark.errors import PySparkException
from structlog.testing import LogCapture

from state_lib.declaration import Call, Declaration, Expression, Source, Where
from state_lib.errors import ConfigurationError, WorkerLost
from state_lib.processing import Fold, Process, Processor
from state_lib.spark.functions import lost
from state_lib.spark.functions.lost import explained
from state_lib.specs import StoreSpec
from tests.support.waiting import deadline_in

CALL = Call("half", "__hf_call0", 0, "", "bigint", (), (), at="step 1, where")
KEY, STORE = Expression("k"), StoreSpec("s")
FOLD = Processor("s", b"", (), "", "", "utf8", "none", fold=Fold(STORE, "k"))
STEPS = (Where(Expression("half(x) > 1", calls=(CALL,))),)


def app(*, steps: tuple[Where, ...] = (), fold: bool = True) -> Declaration:
    processor = FOLD if fold else Processor("p", b"", (), "", "", "utf8", "none")
    verb = Process(Source("t"), steps, KEY, processor, (STORE,), "")
    return Declaration("app", processes=(verb,))


def lost_by(declared: Declaration) -> WorkerLost:
    ended = PySparkException("Job aborted: Python worker exited unexpectedly (crashed)")
    with pytest.raises(WorkerLost) as raised, explained(declared):
        raise ended
    return raised.value


def test_a_worker_that_ends_names_all_that_may_have_ended_it() -> None:
    error = lost_by(app(steps=STEPS))
    assert error.message.endswith("step 1, where: 'half'\n  store 's'")
    assert lost_by(app(fold=False)).message.endswith("Python runs for:\n  processor 'p'")
    assert lost_by(Declaration("app")).message.endswith("No function of the job runs there.")
    assert not isinstance(error, ConfigurationError), "the driver tries again"


def test_topics_that_are_decoded_in_python_are_named() -> None:
    declared = app(fold=False)
    (verb,) = declared.processes
    in_avro = replace(verb, source=Source("flights", format="avro"))
    error = lost_by(Declaration("app", processes=(in_avro,)))
    assert error.message.endswith("processor 'p'\n  topic 'flights', in Avro")


def test_other_errors_are_as_they_are() -> None:
    with pytest.raises(PySparkException, match="no space"), explained(app()):
        raise PySparkException("no space left")


def test_a_batch_that_takes_long_names_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not end is seen by nobody else."""
    captured = LogCapture()
    every = structlog.make_filtering_bound_logger(0)
    log = structlog.wrap_logger(None, processors=[captured], wrapper_class=every)
    monkeypatch.setattr(lost, "log", log)
    said = captured.entries
    with explained(app(steps=STEPS), 0.01):
        deadline = deadline_in(20)
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
    (line,) = said
    assert (line["app"], line["functions"]) == ("app", "step 1, where: 'half'\n  store 's'")
    said.clear()
    with explained(app(steps=STEPS), 60):
        pass
    assert said == []
