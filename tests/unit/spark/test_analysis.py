"""What is made of Spark's answers, as texts: the JVM's own are in tests/integration/spark."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from state_lib.errors import ConfigurationError
from state_lib.spark.analysis import _tree
from state_lib.spark.refusals import FILTERED, SELECTED, Analysed, judge_shape, judge_text
from state_lib.spark.refusals import _argument as argument


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("transform(a, x_1 -> concat(x_1, 'b'))", "transform(a, x_97 -> concat(x_97, 'b'))"),
        ("f(x_3, y_4 -> f(y_4, x_3))", "f(x_8, y_2 -> f(y_2, x_8))"),
        ("sha2([B@1f2e3d, 256)", "sha2([B@77, 256)"),
        (">(ts, 2026-01-31 12:00:00.0)", ">(ts, 2026-01-31 07:00:00.0)"),
    ],
)
def test_what_each_process_writes_in_its_own_way_is_the_same(one: str, same: str) -> None:
    """Moments and bytes stand in the resolved text as well, the same everywhere."""
    assert _tree(one) == _tree(same)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f(x_1, y_2 -> f(x_1, y_2))", "f(x_1, y_2 -> f(y_2, x_1))"),
        ("like('x_1')", "like('x_2')"),
        ("like('it\\'s x_1')", "like('it\\'s x_2')"),
        ("from_json(value, '[B@1f')", "from_json(value, '[B@2f')"),
        ("at('2026-01-31 12:00:00.0')", "at('2026-01-31 07:00:00.0')"),
        ("max_1 + 1", "max_2 + 1"),
        ("CAST(x AS ARRAY<INT>)", "CAST(x AS ARRAY<BIGINT>)"),
    ],
)
def test_all_else_counts(one: str, other: str) -> None:
    assert _tree(one) != _tree(other)


@pytest.mark.parametrize(
    "text",
    ["day = DATE'today'", 'date "Now"', "f(timestamp_ltz  ' tomorrow')", "TIMESTAMP_NTZ r'epoch'"],
)
def test_words_for_moments_are_found_in_text(text: str) -> None:
    with pytest.raises(ConfigurationError, match="here makes a moment of"):
        judge_text(text, "here")


@pytest.mark.parametrize(
    "text", ["update 'today'", "to_date(k, 'today')", "DATE'2026-01-31'", "mandate'now'", "'date'"]
)
def test_other_text_is_taken(text: str) -> None:
    judge_text(text, "here")


def made(*shape: str, name: str = "k") -> Analysed:
    """A plan of such nodes, whose expression is a column."""
    column = {"class": "c.AttributeReference", "num-children": 0, "name": name}
    top: dict[str, Any] = {"class": f"p.{shape[0]}", "num-children": 1}
    top |= {"condition": [column]} if shape[0] == "Filter" else {"projectList": [[column]]}
    rest = [{"class": f"p.{kind}", "num-children": 0} for kind in shape[1:]]
    none: Any = None
    return Analysed(none, none, orjson.dumps([top, *rest]).decode())


def test_a_step_is_one_node_over_its_rows() -> None:
    judge_shape(made(*SELECTED), SELECTED, "here")
    judge_shape(made(*FILTERED), FILTERED, "here")


@pytest.mark.parametrize(
    ("shape", "wanted", "said"),
    [
        (("Project", "Project", "LogicalRDD"), SELECTED, "Write two"),
        (("Project", "Project", "Filter", "LogicalRDD"), SELECTED, r"\['Filter'\].*windowedBy"),
        (("Project", "Filter", "Expand", "LogicalRDD"), SELECTED, r"\['Expand', 'Filter'\]"),
        (("Filter", "Project", "LogicalRDD"), FILTERED, r"\['Project'\]"),
        (("Project", "Generate", "LogicalRDD"), SELECTED, "several rows of one"),
    ],
)
def test_more_nodes_are_refused(shape: tuple[str, ...], wanted: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        judge_shape(made(*shape), wanted, "here")


@pytest.mark.parametrize("wanted", [SELECTED, FILTERED])
def test_the_column_that_nobody_names_tells_of_a_star(wanted: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"'\*' within an expression"):
        judge_shape(made(*wanted, name="__hf_star"), wanted, "here")


def test_arguments_stand_one_after_the_other() -> None:
    """Each before its own: f(g(a, b), h(c), d)."""
    nodes: list[dict[str, Any]] = [
        {"class": name, "num-children": number}
        for name, number in [*zip("fgabhcd", (3, 2, 0, 0, 1, 0, 0), strict=True)]
    ]
    found = ["".join(str(n["class"]) for n in argument(nodes, 0, i)) for i in range(3)]
    assert found == ["gab", "hc", "d"]
