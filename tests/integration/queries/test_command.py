"""`holdfast query` and `holdfast stores`."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from state_lib.cli import app as command
from state_lib.keys import partition_for
from tests.support.queried import (
    APP,
    NOON,
    PARTITIONS,
    STARTS,
    TOKEN,
    Cluster,
)


@pytest.fixture
def shell(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    hosts = ",".join(f"{h.id}={h.host}:{h.flight_port}/{h.http_port}" for h in cluster.hosts)
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HOSTS", hosts)
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner()


def test_query_prints_tables(shell: CliRunner) -> None:
    one = shell.invoke(command, ["query", APP, "words", "a/b", "-v"])
    assert one.exit_code == 0, one.output
    assert "a/b" in one.stdout
    assert "00ff" in one.stdout
    assert f"lines[{partition_for(b'a/b', 3)}]=" in one.stdout
    some = shell.invoke(command, ["query", APP, "words", "--prefix", "a", "--limit", "2"])
    assert some.exit_code == 0
    assert "raise --limit" in some.stderr
    hours = shell.invoke(command, ["query", APP, "hours", "k", "--from", str(NOON)])
    assert "2023-11-14T22:00:00.000Z" in hours.stdout
    strange = shell.invoke(command, ["query", APP, "words", "nul\0"])
    assert "nul\\x00" in strange.stdout


def test_query_prints_json_lines(shell: CliRunner) -> None:
    done = shell.invoke(command, ["query", APP, "numbers", "--json", "-v"])
    assert done.exit_code == 0
    rows = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [row["key"] for row in rows] == [0, 7, 2**62, -3]
    assert len(orjson.loads(done.stderr)["position"]) == PARTITIONS
    negative = shell.invoke(command, ["query", APP, "numbers", "--json", "--", "-3"])
    assert orjson.loads(negative.stdout) == {"key": -3, "value": "NaN"}


def test_a_key_of_several_columns_is_an_object(shell: CliRunner) -> None:
    key = '{"origin": "JFK", "day": "2013-01-31"}'
    done = shell.invoke(command, ["query", APP, "routes", key, "--json"])
    (line,) = done.stdout.splitlines()
    assert orjson.loads(line)["key"] == orjson.loads(key)
    of_a_day = ["query", APP, "routes", "--prefix", '{"day": "2013-01-31"}']
    lines = shell.invoke(command, [*of_a_day, "--json"]).stdout.splitlines()
    assert [orjson.loads(one)["key"]["origin"] for one in lines] == ["JFK", "LGA", "ZZZZ"]
    table = shell.invoke(command, of_a_day).stdout
    assert all(word in table for word in ("origin", "day", "least", "1.50", "ZZZZ"))


def test_windows_of_a_key_of_several_columns(shell: CliRunner) -> None:
    key = '{"origin": "JFK", "day": "2013-01-31"}'
    since = ["--from", str(NOON), "--json"]
    lines = shell.invoke(command, ["query", APP, "route-hours", key, *since]).stdout.splitlines()
    rows = [orjson.loads(line) for line in lines]
    assert [(row["key"], row["window_start"]) for row in rows] == [
        (orjson.loads(key), start) for start in STARTS if start >= NOON
    ]
    of_a_day = ["--prefix", '{"day": "2013-01-31"}', *since, "--to", str(NOON)]
    lines = shell.invoke(command, ["query", APP, "route-hours", *of_a_day]).stdout.splitlines()
    assert [orjson.loads(one)["key"]["origin"] for one in lines] == ["JFK", "LGA", "ZZZZ"]


@pytest.mark.parametrize("name", ["query", "stores"])
def test_help_has_examples(name: str) -> None:
    done = CliRunner().invoke(command, [name, "--help"])
    assert f"holdfast {name} flights" in done.output


def test_stores_prints_both_tables_or_json(shell: CliRunner) -> None:
    done = shell.invoke(command, ["stores", APP])
    assert done.exit_code == 0, done.output
    assert f"{APP}/2" in done.stdout
    assert "n, last, raw" in done.stdout
    body = orjson.loads(shell.invoke(command, ["stores", APP, "--json"]).stdout)
    assert body["partitions"] == PARTITIONS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["words", "nosuch"], "nothing for key 'nosuch'"),
        (["hours", "nosuch"], "nothing for key 'nosuch'"),
        (["nosuch"], "no store 'nosuch'"),
        (["numbers", "seven"], "decimal integer"),
        (["routes", "JFK"], '{"origin": utf8, "day": date}'),
        (["routes", "--prefix", '{"origin": "JFK"}'], "the first of ['day', 'origin']"),
        (["routes", "--prefix", '{"orign": "JFK"}'], "the first of ['day', 'origin']"),
        (["routes", "--prefix", "{}"], "leave it out"),
        (["routes", "--prefix", "JFK"], "with the first of its columns"),
        (["route-hours", "--prefix", '{"orign": "JFK"}'], "the first of ['day', 'origin']"),
        (["route-hours", "JFK"], '{"origin": utf8, "day": date}'),
        (["numbers", "--prefix", "1"], "no prefixes"),
        (["words", "a", "--prefix", "a"], "not both"),
        (["hours", "--from", "soon"], "not a time"),
    ],
)
def test_query_says_what_is_wrong(shell: CliRunner, arguments: list[str], said: str) -> None:
    done = shell.invoke(command, ["query", APP, *arguments])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
