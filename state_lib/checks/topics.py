"""Topics as they must be: there, with their partitions, their cleanup policy, their timestamps."""

from __future__ import annotations

from collections.abc import Iterator

from state_lib.changelog.policy import Problem, problems
from state_lib.changelog.topics import TopicPlan, topology_topic
from state_lib.checks.facts import Facts, TopicSeen
from state_lib.checks.verdict import Change, Verdict

_TIMES = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


def topics(facts: Facts) -> Iterator[Verdict]:
    """Every topic exists, with as many partitions as the application has."""
    for plan in facts.plans():
        seen, needed = facts.topics.get(plan.name), f"{plan.partitions} partitions"
        if seen is None:
            yield Verdict("topics", plan.name, "fail", "it is missing", needed, _anew(facts, plan))
        elif seen.partitions != plan.partitions:
            text, step = f"{seen.partitions} partitions", _recount(facts, plan)
            yield Verdict("topics", plan.name, "fail", text, needed, step)
        elif seen.untold:
            yield _untold(plan.name, seen)
        else:
            yield Verdict("topics", plan.name, "ok", needed, needed)
    for source in facts.topology.sources:
        if source not in facts.topics:
            step = "create it, or correct its name in the job"
            yield Verdict("topics", source, "fail", "it is missing", "a source", step)
        elif facts.topics[source].untold:
            yield _untold(source, facts.topics[source])


def cleanup_policy(facts: Facts) -> Iterator[Verdict]:
    """Changelogs of key-value stores only compact, those of windows also delete by age."""
    for plan, seen in facts.existing():
        if not plan.owned:
            continue
        policy, wanted = seen.config["cleanup.policy"], plan.config["cleanup.policy"]
        found = of(plan, seen, "cleanup.policy")
        if found is None:
            yield Verdict("cleanup-policy", plan.name, "ok", policy, wanted)
            continue
        if wanted == "delete":
            loses = "of records with equal keys all but one go, such without a key are refused"
        elif "delete" in policy:
            loses = "records are deleted by age"
        else:
            loses = "records are never removed"
        yield Verdict(
            "cleanup-policy",
            plan.name,
            "fail",
            f"{policy}: {loses}",
            found.needed,
            by_repair(facts),
            changes(plan, found),
        )


def timestamps(facts: Facts) -> Iterator[Verdict]:
    """Records keep the time of their event, whatever it is."""
    for plan, seen in facts.existing():
        if not plan.owned:
            if plan.dated:
                yield _of_dated(plan, seen)
            continue
        found = of(plan, seen, "message.timestamp.type")
        bounds = [
            Problem(key, seen.config[key], plan.config[key], plan.config[key])
            for key in _TIMES
            if int(seen.config[key]) < int(plan.config[key])
        ]
        if found is not None:
            yield Verdict(
                "timestamps",
                plan.name,
                "fail",
                f"{found.key}={found.seen}: event times are lost, windows age by the wall clock",
                found.needed,
                by_repair(facts),
                changes(plan, found),
            )
        elif bounds:
            yield Verdict(
                "timestamps",
                plan.name,
                "warn",
                ", ".join(f"{b.key}={b.seen}" for b in bounds)
                + ": a commit with an older or newer record is refused",
                "no bound",
                by_repair(facts),
                changes(plan, *bounds),
            )
        else:
            yield Verdict("timestamps", plan.name, "ok", "CreateTime, no bound", "CreateTime")


def _of_dated(plan: TopicPlan, seen: TopicSeen) -> Verdict:
    """Of an output whose rows say themselves when they are."""
    found = of(plan, seen, _TIMES[1])
    if found is None:
        return Verdict("timestamps", plan.name, "ok", "rows of all times are taken", "no bound")
    text = f"{found.key}={found.seen}: a commit with a row of a later time is refused"
    step = "raise it with kafka-configs: it is an output, which Holdfast does not alter"
    return Verdict("timestamps", plan.name, "fail", text, found.needed, step)


def of(plan: TopicPlan, seen: TopicSeen, key: str) -> Problem | None:
    """What the rules by which a start is refused say of one setting."""
    found = problems(plan, plan.partitions, seen.config)
    return next((p for p in found if p.key == key), None)


def changes(plan: TopicPlan, *found: Problem) -> tuple[Change, ...]:
    """What would be set; nothing of a topic that is not the application's own."""
    cured = [p for p in found if p.cure is not None and plan.owned]
    return tuple(Change(plan.name, p.key, p.seen, p.cure or "") for p in cured)


def by_repair(facts: Facts) -> str:
    """The next step where a setting is all that is wrong."""
    repair = f"'holdfast repair config {facts.app}', or the DAG {facts.app}_repair"
    return f"{repair}, shows what it would set, and asks"


def anew_by_hosts(facts: Facts) -> str:
    """The next step where Kafka has lost what the hosts still have."""
    repair = f"'holdfast repair changelog {facts.app}', or the DAG {facts.app}_repair"
    return f"{repair}, writes it anew from the hosts' copies"


def _anew(facts: Facts, plan: TopicPlan) -> str:
    if not plan.owned:
        return "create it, or let the job's next start do so"
    if plan.name == topology_topic(facts.app):
        return f"'holdfast repair topology {facts.app}'"
    if plan.store is not None or plan.config["cleanup.policy"] == "compact":
        return anew_by_hosts(facts)
    return "the job's next start creates it: what it held is lost"


def _recount(facts: Facts, plan: TopicPlan) -> str:
    """What to do with a topic of another partition count; it cannot be lowered."""
    if not plan.owned:
        return (
            f"stop the job, create it anew with {plan.partitions} partitions: only then does it "
            "have each key in one of them"
        )
    if plan.store is None and plan.config["cleanup.policy"] == "delete":
        return "stop the job, copy what is still of use, delete the topic: the next start makes it"
    return (
        "stop the job; keys of another partition count lie elsewhere: begin anew with "
        f"'holdfast app reset {facts.app}', or restore the topic from a copy"
    )


def _untold(name: str, seen: TopicSeen) -> Verdict:
    text = f"the brokers do not tell {', '.join(seen.untold)}: nothing is said of these"
    step = f"look at them where the brokers are run, or with 'kafka-configs --topic {name}'"
    return Verdict("topics", name, "warn", text, "every setting that counts", step)
