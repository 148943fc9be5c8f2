"""Holdfast's errors as Airflow's: which of them a retry may mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

from state_lib.errors import (
    ConfigurationError,
    HoldfastError,
    InvalidRequest,
    NotFound,
    Unauthorized,
)


class SubmissionUnclear(ConfigurationError):
    """A cluster may have taken a driver and we do not know it: no retry may submit another."""

    code = "submission-unclear"


FINAL = (ConfigurationError, InvalidRequest, NotFound, Unauthorized)


@contextmanager
def as_airflow(*, skip_unknown: bool = False) -> Iterator[None]:
    """Raise what a person must correct as `AirflowFailException`, which no retry follows.

    Everything else that Holdfast raises becomes an `AirflowException`: the task's retries apply.
    The message is Holdfast's own, which says what to do.

    Args:
        skip_unknown: an application that never ran, or was reset, skips the task.
    """
    try:
        yield
    except NotFound as error:
        wanted = AirflowSkipException if skip_unknown else AirflowFailException
        raise wanted(error.message) from error
    except FINAL as error:
        raise AirflowFailException(error.message) from error
    except HoldfastError as error:
        raise AirflowException(error.message) from error
