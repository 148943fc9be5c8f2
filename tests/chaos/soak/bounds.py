"""What a killed driver is promised (issue 4), by what a round took. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tests.chaos.soak.deck import BROKER, HOST, Round

NOTICED_S = 10.0
"""From the kill of a driver to the next one, while Airflow is well."""
MISSING_S = 30.0
"""From the moment when Airflow is well again to the next one."""
COMMITS_S = 30.0
"""To its first commit: from the kill; if Airflow was killed too, from the driver's start."""
AWAY = frozenset({HOST, BROKER})
"""Without them a driver cannot commit: then nothing is promised."""


def too_late(one: Round, took: Mapping[str, float], slowness: float = 1.0) -> list[str]:
    """What was later than promised, in words.

    Args:
        one: a round.
        took: seconds from the kill, or from Airflow's health, to another ``driver``, and from there
            to its first ``commit``.
        slowness: of the machine, as a factor.
    """
    if not one.of_driver or one.damage or AWAY & set(one.victims):
        return []
    driver_s, commit_s = took["driver"], took["commit"]
    if one.of_airflow:
        promised = (("a driver", driver_s, MISSING_S), ("committing", commit_s, COMMITS_S))
    else:
        promised = (
            ("a driver", driver_s, NOTICED_S),
            ("committing", driver_s + commit_s, COMMITS_S),
        )
    return [
        f"{what} after {seconds:.1f} s and not {most * slowness:.0f}"
        for what, seconds, most in promised
        if seconds > most * slowness
    ]
