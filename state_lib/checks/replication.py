"""Would a broker's death lose what was acknowledged, or stop commits?"""

from __future__ import annotations

from collections.abc import Iterator

from state_lib.changelog.policy import Problem
from state_lib.changelog.topics import TopicPlan
from state_lib.checks.facts import Facts, TopicSeen
from state_lib.checks.topics import by_repair, changes
from state_lib.checks.verdict import Verdict
from state_lib.words import some

NAME = "replication"
_LEAST, _UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_BROKERS = "look at the brokers: one of them is away or cannot follow"


def replication(facts: Facts) -> Iterator[Verdict]:
    """Replicas, those in sync, ``min.insync.replicas``, unclean election: one verdict a topic."""
    for plan, seen in facts.existing():
        found = _by_brokers(facts, plan, seen) or _by_settings(facts, plan, seen)
        if found is None:
            text = f"{min(seen.replicas)} replicas, all in sync, {_LEAST}={seen.config[_LEAST]}"
            found = Verdict(NAME, plan.name, "ok", text, _needed(facts))
        yield found


def _by_brokers(facts: Facts, plan: TopicPlan, seen: TopicSeen) -> Verdict | None:
    """What is wrong at this moment."""
    least, needed = int(seen.config[_LEAST]), _needed(facts)
    if seen.leaderless:
        text = f"partitions {some(seen.leaderless)} have no leader: nobody reads or writes them"
        return Verdict(NAME, plan.name, "fail", text, needed, _BROKERS)
    counts = list(enumerate(zip(seen.replicas, seen.in_sync, strict=True)))
    if least > min(seen.replicas):
        text = f"{_LEAST}={least} and {min(seen.replicas)} replicas: nothing can be committed"
        fits = str(max(1, min(min(seen.replicas) - 1, facts.wanted.min_insync)))
        cure = changes(plan, Problem(_LEAST, str(least), fits, fits))
        step = by_repair(facts) if cure else _foreign()
        return Verdict(NAME, plan.name, "fail", text, needed, step, cure)
    if few := [p for p, (_, in_sync) in counts if in_sync < least]:
        text = f"partitions {some(few)} have fewer than {least} replicas in sync: commits fail"
        return Verdict(NAME, plan.name, "fail", text, needed, _BROKERS)
    if behind := [p for p, (replicas, in_sync) in counts if in_sync < replicas]:
        text = f"partitions {some(behind)} have replicas that are not in sync"
        return Verdict(NAME, plan.name, "warn", text, needed, _BROKERS)
    return None


def _by_settings(facts: Facts, plan: TopicPlan, seen: TopicSeen) -> Verdict | None:
    """What would be wrong once a broker dies."""
    wanted, replicas, needed = facts.wanted, min(seen.replicas), _needed(facts)
    least = int(seen.config[_LEAST])
    if seen.config[_UNCLEAN] == "true" and replicas > 1:
        cure = changes(plan, Problem(_UNCLEAN, "true", "false", "false"))
        text = f"{_UNCLEAN}=true: a replica that lacks commits may become leader"
        step = by_repair(facts) if cure else _foreign()
        return Verdict(NAME, plan.name, "fail", text, f"{_UNCLEAN}=false", step, cure)
    if replicas < wanted.replication:
        text = f"{replicas} replicas"
        step = (
            "add replicas with kafka-reassign-partitions, or set HOLDFAST_REPLICATION_FACTOR if "
            "that many are meant"
        )
        return Verdict(NAME, plan.name, "warn", text, needed, step)
    if least < wanted.min_insync:
        target = str(wanted.min_insync)
        cure = changes(plan, Problem(_LEAST, str(least), target, target))
        text = f"{_LEAST}={least}: what is acknowledged may be on {least} broker alone"
        step = by_repair(facts) if cure else _foreign()
        return Verdict(NAME, plan.name, "warn", text, needed, step, cure)
    return None


def _needed(facts: Facts) -> str:
    return f"{facts.wanted.replication} replicas, {_LEAST}={facts.wanted.min_insync}"


def _foreign() -> str:
    return "correct it with kafka-configs: it is an output, which Holdfast does not alter"
