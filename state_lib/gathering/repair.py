"""Sets what checks would have different: the one thing here that alters anything."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from state_lib.apps.sizes import owned_topics
from state_lib.changelog.admin import set_topic_configs
from state_lib.changelog.claims import topology_of
from state_lib.checks import SETTINGS, Change, judge
from state_lib.errors import InvalidRequest
from state_lib.gathering.application import gather_settings
from state_lib.kafka import Kafka

if TYPE_CHECKING:
    from state_lib.config import Settings

_SETTLE_S, _AGAIN_S = 3.0, 0.2


def differences(settings: Settings, kafka: Kafka, app: str) -> tuple[Change, ...]:
    """How topics of an application are set now, where checks would have them set differently.

    Raises:
        NotFound: there is no such application.
        Unavailable: Kafka is away.
    """
    return judge(gather_settings(settings, kafka, app), SETTINGS).changes


def left_different(settings: Settings, kafka: Kafka, app: str) -> tuple[Change, ...]:
    """As `differences`, after something was set: brokers tell each other of it within a moment."""
    deadline = time.monotonic() + _SETTLE_S
    while (found := differences(settings, kafka, app)) and time.monotonic() < deadline:
        time.sleep(_AGAIN_S)
    return found


def set_approved(
    settings: Settings, kafka: Kafka, app: str, approved: Iterable[Change]
) -> tuple[Change, ...]:
    """Set what somebody has seen and approved, as far as it is still different; returns that.

    Raises:
        InvalidRequest: something differs that was not approved, or by now differently: nothing was
            altered.
        Others: as `differences` and `set_changes`.
    """
    known, found = set(approved), differences(settings, kafka, app)
    if new := [change for change in found if change not in known]:
        first = new[0]
        raise InvalidRequest(
            f"the topics of {app!r} are not set any more as they were when the repair was approved:"
            f" {first.key} of {first.topic} is {first.seen} and is to be {first.wanted}"
            f"{f', and {len(new) - 1} more' if new[1:] else ''}. Nothing was altered: look at the "
            "difference again, and approve it anew",
            app=app,
            changed=[change.key for change in new],
        )
    set_changes(kafka, app, found)
    return found


def set_changes(kafka: Kafka, app: str, changes: Iterable[Change]) -> None:
    """Alter topics of an application, one after the other; each wholly or not at all.

    Raises:
        InvalidRequest: one of them is not the application's own; nothing was altered.
        Unavailable, KafkaRefused: topics before it were altered; run it again.
    """
    by_topic: dict[str, dict[str, str]] = defaultdict(dict)
    for change in changes:
        by_topic[change.topic][change.key] = change.wanted
    owned = owned_topics(topology_of(kafka, app))
    if foreign := sorted(by_topic.keys() - owned.keys()):
        raise InvalidRequest(
            f"{app!r} does not own {', '.join(foreign)}: only its own topics are altered",
            app=app,
            topics=foreign,
        )
    for topic, config in by_topic.items():
        set_topic_configs(kafka.admin(), topic, config)
