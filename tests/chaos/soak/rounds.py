"""Plays rounds: kill, then wait until all is as it should be."""

from __future__ import annotations

import random
import time

from tests.chaos.soak.bounds import too_late
from tests.chaos.soak.deck import HOST, Round
from tests.chaos.soak.held import Held
from tests.chaos.soak.killer import Killer
from tests.chaos.soak.ledger import Ledger, Loss
from tests.chaos.soak.scene import Scene
from tests.support.waiting import SLOWNESS, until

AWAY_S = 60.0
"""From the kill of a service of Airflow until its health report says so."""
HEALTHY_S = 180.0
"""From then until all are healthy."""
DRIVER_S = 60.0
"""From there, or from the kill, to another driver, whatever else is at work: see `bounds`."""
COMMITS_S = 120.0
"""From there to its first commit, and until what was there is processed by all tasks; likewise."""
BACK_S = 300.0
"""From the loss of a store until it is restored, verified and reported."""


class Rounds:
    """Plays one after the other; how long each took is a line of the scene."""

    def __init__(
        self, scene: Scene, killer: Killer, ledger: Ledger, held: Held, rng: random.Random
    ) -> None:
        self._scene, self._killer, self._ledger = scene, killer, ledger
        self._held, self._rng = held, rng

    def play(self, one: Round) -> None:
        """Damage, kill, wait; all limits are for an idle machine."""
        scene, took = self._scene, dict[str, float]()
        epoch, drivers = scene.sight().epoch, scene.drivers()
        loss = self._killer.lose(one.damage) if one.damage else None
        if loss is not None and one.victims:
            self._overlap(loss, one)
        if one.held:
            killed = [self._held.play(took)]
        else:
            killed = self._killer.kill(one.victims, None if loss is None else loss.host)
        if loss is not None:
            loss.killed += killed
        if one.of_airflow:
            took["away"] = scene.until("seen to be away", lambda: not scene.healthy(), AWAY_S)
            took["healthy"] = scene.until("healthy again", scene.healthy, HEALTHY_S)
        if one.of_driver:
            took["driver"] = scene.until("a driver", lambda: scene.drivers() - drivers, DRIVER_S)
            took["commit"] = scene.until("committing", lambda: scene.committing(epoch), COMMITS_S)
        if loss is not None:
            took["restored"] = self._await(loss)
        took["whole"] = scene.until("all tasks open", scene.whole, COMMITS_S)
        goal = until(scene.goal, COMMITS_S, "Kafka back")
        took["caught up"] = scene.until("caught up", lambda: scene.caught_up(goal), COMMITS_S)
        same = scene.drivers() == drivers
        if one.of_airflow and not one.of_driver:
            assert same, f"{one.name}: the driver was replaced and not adopted"
        spent = ", ".join(f"{what} {s:.1f} s" for what, s in took.items())
        who = f" ({', '.join(killed)})" if HOST in one.victims else ""
        kept = "the same driver" if same else "another driver"
        scene.lines.append(f"{one.name}{who}: {spent}; {kept}")
        late = too_late(one, took, SLOWNESS) if one.timed else []
        assert not late, f"{scene.lines[-1]}: {late}"

    def _overlap(self, loss: Loss, one: Round) -> None:
        """Kill somewhere between the host's return and the end of the restore.

        Its host: not before it has begun to restore, or it would only start once more.
        """
        early = () if HOST in one.victims else ("quarantined",)
        begun = (*early, "restoring", "open")
        self._scene.until(f"{loss.task} seen", lambda: self._state(loss) in begun, BACK_S)
        if early:
            time.sleep(self._rng.uniform(0, 10))

    def _await(self, loss: Loss) -> float:
        """Until it is reported; counts for how long it was left alone."""
        looked = time.monotonic()

        def back() -> bool:
            nonlocal looked
            now = time.monotonic()
            if self._state(loss) == "quarantined":
                loss.quarantined_s += now - looked
            looked = now
            return self._ledger.is_back(loss, time.time())

        took = self._scene.until(f"{loss.task} restored and reported", back, BACK_S)
        loss.built = self._ledger.built(loss.host, loss.partition) - loss.built_before
        loss.check_built()
        return took

    def _state(self, loss: Loss) -> str:
        return self._scene.states().get(loss.partition, "away")
