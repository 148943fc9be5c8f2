"""Log-in, certificates and access rights, on a broker that asks for all of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from state_lib.acls import ROLES, Right, Role, rights
from state_lib.apps.hosts import Hosts
from state_lib.apps.removal import carry_out, plan
from state_lib.changelog.admin import ensure_topics, topic_configs
from state_lib.changelog.claims import newest_claim
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.reader import read
from state_lib.changelog.topics import TopicPlan, dead_letter_queue, plan_topics
from state_lib.changelog.writer import Records
from state_lib.checks import Change
from state_lib.config import Settings
from state_lib.driver.claims import check_no_collision, check_same_application, write_claim
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.identity import Identity
from state_lib.drivers.look import _Story
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from state_lib.errors import ConfigurationError, KafkaRefused, Unavailable
from state_lib.gathering.application import gather_settings
from state_lib.gathering.repair import set_changes
from state_lib.gathering.sensing import Sense
from state_lib.kafka import Kafka, ends, require, starts, unavailable
from state_lib.loading import Record, publish
from state_lib.protocol.marker import now_ms
from tests.support.apps import KV, NOON, WIN, App, app_of, batch, claimed, days, kv, win
from tests.support.secured import MECHANISM, Secured, certificates, secured_broker
from tests.support.waiting import deadline_in, until

SECRET = 'it\'s "quoted" \\ and long'
RECORDS = [Record(b"k", b"v", NOON)]
PROGRESS = {"from": {}, "to": {}, "clock": 0, "now": 0, "max_future_ms": 1, "tasks": None}
_numbers = itertools.count()
Use = Callable[["Principal", App], None]


class Principal:
    """One who logs in with the settings that a user would write."""

    def __init__(self, secured: Secured, name: str, **other: object) -> None:
        login = {
            "bootstrap_servers": secured.servers,
            "replication_factor": 1,
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": MECHANISM,
            "kafka_sasl_username": name,
            "kafka_sasl_password": SECRET,
            "kafka_ssl_ca": secured.ca,
        }
        self.settings = Settings.load(**login | other)
        self.kafka = Kafka.of(self.settings)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured") / "broker") as running:
        for role in ROLES:
            running.user(role, SECRET)
        until(lambda: answers_for_groups(running.plain), 60)
        yield running


def answers_for_groups(kafka: Kafka) -> bool:
    """A new broker makes its topic of groups when the first one is asked for."""
    try:
        return not living_drivers(kafka, "nobody")
    except Unavailable:
        return False


@pytest.fixture
def fresh(secured: Secured, tmp_path: Path) -> Iterator[Callable[[], App]]:
    """Applications with names, sources and directories of their own."""
    made: list[App] = []

    def make() -> App:
        name = f"app-{next(_numbers)}"
        app = app_of(secured.plain, name, tmp_path / name, [KV, WIN], [f"{name}-out"])
        app.topology = replace(app.topology, sources=(f"{name}-source",))
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def create(app: App, *, owned: bool) -> None:
    """As a super user: the source, and what the application owns."""
    plan = TopicPlan(app.topology.sources[0], 1, {"retention.ms": "-1"}, owned=False)
    ensure_topics(app.kafka.admin(), [plan], 1, 1)
    if owned:
        app.create()
        write_claim(app.kafka, app.topology)


def drive(by: Principal, app: App) -> None:
    """What a driver itself asks of Kafka. (Spark's own part: tests/chaos/test_secured.py.)"""
    kafka, topology = by.kafka, app.topology
    admin, place = kafka.admin(), (topology.sources[0], 0)
    require(admin, topology.sources)
    topic_configs(admin, topology.sources)
    check_same_application(kafka, topology)
    check_no_collision(kafka, topology)
    for _ in range(2):  # the second start looks at what the first one created
        ensure_topics(admin, plan_topics(topology), 1, 1)
    write_claim(kafka, topology)
    assert newest_claim(kafka, app.name)
    log = ProgressLog(kafka, app.name)
    log.append({"epoch": 0, "n": 1, **PROGRESS})
    assert log.read()
    list(read(kafka, *place, 0, ends(admin, [place])[place]))
    commit_group(kafka, app.name, TopicPartition(*place, 0))
    be_present(Presence(kafka, app.name, Identity.of_this_process()), app)


def be_present(presence: Presence, app: App) -> None:
    def seen() -> bool:
        presence.check()
        return bool(living_drivers(app.kafka, app.name))

    presence.join()
    try:
        until(seen, 60)
    finally:
        presence.leave("stopped", "")


def commit_group(kafka: Kafka, group: str, place: TopicPartition) -> None:
    """Without patience: librdkafka would look for the group for as long as one lets it."""
    told: list[KafkaError | None] = []
    consumer: Consumer = kafka.reader(
        **{"group.id": group, "on_commit": lambda error, _partitions: told.append(error)}
    )
    try:
        consumer.commit(offsets=[place])
        deadline = deadline_in(60)
        while not told and time.monotonic() < deadline:
            if message := consumer.poll(0.1):
                told.append(message.error())
    finally:
        consumer.close()
    if error := told[0]:
        raise unavailable(f"commit offsets of group {group!r}", error, kafka)


def host(by: Principal, app: App) -> None:
    app.kafka = by.kafka
    assert newest_claim(by.kafka, app.name)
    task = app.opened()
    letters = Records(dead_letter_queue(app.name), [b"k"], [b"v"])
    output = Records(app.topology.outputs[0].topic, [b"k"], [b"v"])
    puts = {"kv": kv(("a", "1")), "win": win(("w", NOON - days(300), "1"))}
    task.commit(batch(claimed(task), puts, outputs=[output, letters]))
    app.close()
    app.opened(host="host-2")  # which restores


def load(by: Principal, app: App) -> None:
    for _ in range(2):  # the second run compares what is there
        publish(by.settings, app.topology.sources[0], RECORDS, total=1)


def audit(by: Principal, app: App) -> None:
    own = [f"{app.name}-{name}" for name in ("topology", "progress", "commits", "dead-letters")]
    read_all(by.kafka, [*app.topology.sources, *own, f"{app.name}-out"])


def follow(by: Principal, app: App) -> None:
    story = _Story(by.kafka, app.name)
    try:
        assert story.look().epoch >= 0
    finally:
        story.close()
    ask_to_stop(by.kafka, app.name, why="a test")


def check(by: Principal, app: App) -> None:
    facts = gather_settings(by.settings, by.kafka, app.name)
    owned = [plan.name for plan, _ in facts.existing() if plan.owned]
    read_all(by.kafka, [topic for topic in owned if topic != dead_letter_queue(app.name)])
    day = [Change(topic, "segment.ms", "", "86400000") for topic in owned]
    set_changes(by.kafka, app.name, day)


def delete(by: Principal, app: App) -> None:
    nowhere = Hosts((), None)
    carry_out(by.kafka, nowhere, plan(by.kafka, nowhere, "delete", app.name))


def read_all(kafka: Kafka, topics: Sequence[str]) -> None:
    places = [(topic, 0) for topic in topics]
    first, end = starts(kafka.admin(), places), ends(kafka.admin(), places)
    for place in places:
        list(read(kafka, *place, first[place], end[place]))


SLOW = ("driver", "admin", "host", "operator", "checker")
"""With a quarter of a minute and more of refusals."""
USES: dict[Role, Use] = {
    "driver": drive,
    "host": host,
    "loader": load,
    "auditor": audit,
    "operator": follow,
    "checker": check,
    "admin": delete,
}


@pytest.mark.parametrize(
    "role", [pytest.param(r, marks=pytest.mark.full if r in SLOW else ()) for r in ROLES]
)
def test_each_role_needs_exactly_these_rights(
    secured: Secured, fresh: Callable[[], App], role: Role
) -> None:
    by, use = Principal(secured, role), USES[role]

    def prepared(leave_out: Right | None = None) -> tuple[App, list[Right]]:
        app = fresh()
        if role != "loader":
            create(app, owned=role != "driver")
        if role in ("auditor", "admin"):
            fill(app)
        elif role in ("operator", "checker"):
            task = app.opened()
            puts = {"kv": kv(("a", "1")), "win": win(("w", now_ms(), "1"))}
            task.commit(batch(claimed(task), puts, clock=now_ms()))
            app.close()
            ProgressLog(app.kafka, app.name).append({"epoch": 0, "n": 1, **PROGRESS})
        wanted = rights(app.topology, role)
        secured.grant(role, wanted if leave_out is None else without(wanted, app, leave_out))
        return app, wanted

    app, wanted = prepared()
    use(by, app)
    for right in wanted:
        for operation in right.operations:
            missing = replace(
                right, name=right.name.removeprefix(app.name), operations=(operation,)
            )
            one, _ = prepared(missing)
            if is_assumed(role, missing):
                use(by, one)
                continue
            with pytest.raises(KafkaRefused) as refused:
                use(by, one)
            assert refused.value.details["principal"] == f"User:{role}"
            assert f"{one.name}{missing.name}" in refused.value.message, missing


def is_assumed(role: Role, right: Right) -> bool:
    """Without it a host takes the usual limit for how large a record may be."""
    changelog = right.name.endswith("-changelog")
    return role == "host" and right.operations == ("DESCRIBE_CONFIGS",) and not changelog


def without(wanted: Sequence[Right], app: App, missing: Right) -> list[Right]:
    """All rights but one operation on one resource."""
    return [
        replace(r, operations=tuple(o for o in r.operations if o not in missing.operations))
        if (r.kind, r.name) == (missing.kind, f"{app.name}{missing.name}")
        else r
        for r in wanted
    ]


def fill(app: App) -> None:
    """At least a record in each topic, so that a read reads."""
    producer = app.kafka.producer()
    plans = [p.name for p in plan_topics(app.topology)]
    for topic in (*app.topology.sources, *plans):
        producer.produce(topic, b"v", b"k", 0)
    assert producer.flush(60) == 0


def ask(by: Principal) -> None:
    ends(by.kafka.admin(), [("nothing", 0)])


def test_a_wrong_password_is_named_as_such(secured: Secured) -> None:
    with pytest.raises(KafkaRefused, match=r"User:driver.*KAFKA_SASL_USERNAME") as refused:
        ask(Principal(secured, "driver", kafka_sasl_password="wrong-one"))
    assert refused.value.details["kafka_error"] == "_AUTHENTICATION"
    assert secured.servers in refused.value.message
    assert "wrong-one" not in refused.value.message


def test_another_authority_is_named_as_such(secured: Secured, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    certificates(tmp_path, other)
    with pytest.raises(KafkaRefused, match=rf"certificate.*{other}") as refused:
        ask(Principal(secured, "driver", kafka_ssl_ca=other))
    assert refused.value.details["kafka_error"] == "_SSL"


def test_a_host_that_was_refused_goes_on_once_it_is_granted(
    secured: Secured, fresh: Callable[[], App]
) -> None:
    """Its writer is of no use after a refusal: it must be another one."""
    app = fresh()
    create(app, owned=True)
    wanted = rights(app.topology, "host")
    missing = Right("topic", "-out", ("WRITE",))
    secured.grant("host", without(wanted, app, missing))
    app.kafka = Principal(secured, "host").kafka
    task = app.opened()
    marker = claimed(task)
    output = Records(app.topology.outputs[0].topic, [b"k"], [b"v"])
    with pytest.raises(KafkaRefused, match=f"may not write to topic {app.name}-out"):
        task.commit(batch(marker, outputs=[output]))
    secured.grant("host", wanted)
    task.open()
    assert task.commit(batch(marker, outputs=[output])).batch_number == marker.batch_number + 1


def test_who_may_not_see_drivers_is_told_so_and_is_not_blind_for_ever(
    secured: Secured, fresh: Callable[[], App]
) -> None:
    app = fresh()
    create(app, owned=True)
    checker = Principal(secured, "checker")
    secured.grant("checker", rights(app.topology, "checker"))
    sense = Sense(checker.settings, app.name, "driver-stalled")
    with pytest.raises(KafkaRefused, match="User:checker"):
        sense.look()
    sense.close()


def test_no_secret_is_shown(secured: Secured) -> None:
    by = Principal(secured, "driver")
    shown = repr(by.kafka) + repr(by.kafka.door) + repr(by.settings) + str(by.settings)
    assert SECRET not in shown
    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        Kafka({"bootstrap.servers": "x", "no.such.property": "x"}).admin()
