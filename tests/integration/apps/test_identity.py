"""Applications side by side: whose an id is."""

from __future__ import annotations

import getpass
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.changelog.claims import Claim, newest_claim, topology_of
from state_lib.changelog.topics import topology_topic
from state_lib.config import Settings
from state_lib.driver.claims import check_no_collision, check_same_application, write_claim
from state_lib.errors import ConfigurationError, LogLost, NotFound
from state_lib.kafka import Kafka, describe
from state_lib.spark.driver import Driver
from state_lib.specs import StoreSpec, Topology
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, app_of, batch, claimed, kv
from tests.support.declared import counting
from tests.support.hosts import publish
from tests.support.lost import made_again
from tests.support.waiting import until


def create(kafka: Kafka, *topics: str) -> None:
    new = [NewTopic(t, 1, 1) for t in topics]
    for future in kafka.admin().create_topics(new, operation_timeout=30).values():
        future.result()


def test_messages_in_the_topology_topic_are_no_claims(make_app: MakeApp) -> None:
    app = make_app()
    assert newest_claim(app.kafka, app.name) is None
    with pytest.raises(NotFound, match="never run"):
        topology_of(app.kafka, app.name)
    epoch = publish(app)
    producer = app.kafka.producer()
    for _ in range(70):  # more than one look at the tail
        producer.produce(topology_topic(app.name), b"{}", key=f"{app.name}/stop".encode())
    assert producer.flush(60) == 0
    assert newest_claim(app.kafka, app.name) == Claim(epoch, topology_of(app.kafka, app.name))
    assert topology_of(app.kafka, app.name).stores == app.topology.stores


def test_a_job_may_grow_its_application(make_app: MakeApp) -> None:
    app = make_app()
    check_same_application(app.kafka, app.topology)
    publish(app)
    check_same_application(app.kafka, app.topology)
    check_same_application(app.kafka, replace(app.topology, stores=(KV, TS)))
    with pytest.raises(ConfigurationError, match="'kv'"):
        check_same_application(app.kafka, replace(app.topology, stores=(TS,)))


def test_a_store_that_was_given_another_type_of_value_is_refused(make_app: MakeApp) -> None:
    """As one of a processor whose state's schema was changed."""
    app = make_app([replace(KV, value_serde="int64")])
    publish(app)
    changed = replace(app.topology, stores=(replace(KV, value_serde="double"),))
    with pytest.raises(ConfigurationError, match=r"'kv'.*double|double.*int64"):
        check_same_application(app.kafka, changed)


def test_a_store_is_given_up_until_something_is_committed_to_it(make_app: MakeApp) -> None:
    """A job whose new store cannot be opened goes back to what it was before."""
    app = make_app()
    before = app.topology
    app.topology = replace(before, stores=(KV, TS))
    app.create()
    epoch = publish(app)
    check_same_application(app.kafka, before)
    task = app.opened()
    first = task.commit(batch(claimed(task, epoch), {"kv": kv(("a", "1"))}))
    check_same_application(app.kafka, before)
    with pytest.raises(ConfigurationError, match="'kv'"):
        check_same_application(app.kafka, replace(before, stores=(TS,)))
    task.commit(batch(first, {"ts": kv(("a", "2"))}))
    for lost in (False, True):
        if lost:
            made_again(app, app.topic("ts"))
        with pytest.raises(ConfigurationError, match=r"a store 'ts', .* stores are \['kv'\]"):
            check_same_application(app.kafka, before)


def test_a_job_that_gave_a_store_up_goes_on(make_app: MakeApp) -> None:
    app = make_app()
    before = app.topology
    app.topology = replace(before, stores=(KV, TS))
    app.create()
    task = app.opened()
    task.commit(batch(claimed(task, publish(app)), {"kv": kv(("a", "1"))}))
    app.topology = before
    check_same_application(app.kafka, before)
    marker = task.claim(before, publish(app))
    assert task.get_many("kv", [b"a"])[1] == [b"1"]
    assert task.commit(batch(marker, {"kv": kv(("b", "2"))})).batch_number == 1
    for future in app.kafka.admin().delete_topics([app.topic("ts")]).values():
        future.result()
    task.close()
    task.open()
    assert task.get_many("kv", [b"a", b"b"])[1] == [b"1", b"2"], "nothing asks for it any more"


def test_an_id_that_another_team_uses_is_refused(make_app: MakeApp, name: str) -> None:
    theirs = make_app()
    epoch = publish(theirs)
    orders = f"{name}-orders"
    create(theirs.kafka, orders)
    # A list that is asked for at once may be older than it.
    before = {orders, *theirs.kafka.admin().list_topics(timeout=15).topics}
    job = counting(theirs.name, {orders: "counts"}, 2)
    servers = str(theirs.kafka.properties["bootstrap.servers"])
    settings = Settings.load(bootstrap_servers=servers, replication_factor=1)
    with pytest.raises(ConfigurationError) as refused:
        Driver(job, settings).run()
    message = refused.value.message
    for seen in (theirs.name, "1 partitions", "'source'", "'kv'", "['counts']", sys.argv[0]):
        assert seen in message
    for next_step in ("another application id", f"holdfast app delete {theirs.name}"):
        assert next_step in message
    by = refused.value.details["claimed_by"]
    assert by["driver"].startswith(socket.gethostname())
    assert (by["user"], by["claimed_at"] > 0) == (getpass.getuser(), True)
    assert set(theirs.kafka.admin().list_topics(timeout=15).topics) == before, "nothing was made"
    claim = newest_claim(theirs.kafka, theirs.name)
    assert claim is not None
    assert claim.epoch == epoch, "nobody was superseded"


@pytest.mark.parametrize("lost", ["kv-changelog", "commits"])
def test_a_topic_that_was_there_is_not_made_again(make_app: MakeApp, lost: str) -> None:
    """An empty one would be taken for all that there is."""
    app = make_app()
    publish(app)
    check_same_application(app.kafka, app.topology)
    topic = f"{app.name}-{lost}"
    for future in app.kafka.admin().delete_topics([topic]).values():
        future.result()
    until(lambda: not describe(app.kafka.admin(), [topic]))
    with pytest.raises(LogLost, match=f"topic '{topic}' .* was deleted"):
        check_same_application(app.kafka, app.topology)


def test_applications_that_would_share_a_changelog_are_refused(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    first = app_of(kafka, name, tmp_path, [StoreSpec("b-c")], [])
    first.create()
    write_claim(kafka, first.topology)
    check_no_collision(kafka, first.topology)
    check_no_collision(kafka, Topology(f"{name}-b", 1, (StoreSpec("other"),)))
    with pytest.raises(ConfigurationError, match=f"{name}-b-c-changelog.*{name!r}"):
        check_no_collision(kafka, Topology(f"{name}-b", 1, (StoreSpec("c"),)))
