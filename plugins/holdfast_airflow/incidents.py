"""Incidents of an application, and who was told of each; no restart of Airflow forgets it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from state_lib.checks.condition import Condition

Record = dict[str, Any]
"""``since`` and ``over`` (ms; ``over`` is None while it goes on), ``condition``, without its tasks
once all have been told, ``told`` and ``over_told``: who was."""


class Incidents:
    """Those of one condition, by subject. An incident begins once, is told once, and ends once.

    Args:
        store: an asset's state store, as `airflow.sdk.Context` has it.
        name: of the condition.
    """

    def __init__(self, store: Any, name: str) -> None:
        self._store, self._key = store, f"incidents-{name}"
        self._records: dict[str, Record] = store.get(self._key) or {}

    @property
    def open(self) -> list[str]:
        """Subjects of those that go on."""
        return [subject for subject, one in self._records.items() if one["over"] is None]

    def begin(self, conditions: Iterable[Mapping[str, Any]], now: int) -> None:
        """These hold. One whose end was not told to all goes on; for who was told it is another."""
        for condition in conditions:
            known = self._records.get(condition["subject"])
            if known is not None:
                if known["over_told"]:
                    known["told"] = [who for who in known["told"] if who not in known["over_told"]]
                    known["condition"], known["since"] = dict(condition), now
                known["over"], known["over_told"] = None, []
                continue
            fresh: Record = {"since": now, "over": None, "told": [], "over_told": []}
            self._records[condition["subject"]] = {**fresh, "condition": dict(condition)}
        self._save()

    def end(self, subjects: Iterable[str], now: int) -> None:
        """These are over."""
        for subject in subjects:
            if subject in self._records:
                self._records[subject]["over"] = now
        self._save()

    def to_tell(self, who: str) -> list[Condition]:
        """What has begun, goes on, and was not told to somebody."""
        from state_lib.checks.condition import Condition

        return [
            Condition.from_json(one["condition"])
            for one in self._records.values()
            if one["over"] is None and who not in one["told"]
        ]

    def over_to_tell(self, who: str) -> dict[str, tuple[int, int]]:
        """What is over and was told to somebody as an alarm: subject → beginning and end (ms)."""
        return {
            subject: (one["since"], one["over"])
            for subject, one in self._records.items()
            if one["over"] is not None and who in one["told"] and who not in one["over_told"]
        }

    def told(self, who: str, subjects: Iterable[str], *, over: bool) -> None:
        """It was told to somebody: noted at once, so that no restart tells it again."""
        for subject in subjects:
            self._records[subject]["over_told" if over else "told"].append(who)
        self._save()

    def tidy(self, everybody: Iterable[str]) -> None:
        """Forget what all of them know."""
        all_ = set(everybody)
        for subject, one in list(self._records.items()):
            if all_ <= set(one["told"]):
                one["condition"]["tasks"] = []  # hundreds may be concerned
            if one["over"] is not None and not (all_ & set(one["told"])) - set(one["over_told"]):
                del self._records[subject]
        self._save()

    def _save(self) -> None:
        self._store.set(self._key, self._records)
