"""What the documentation shows for DAG files makes DAGs that Airflow takes."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from tests.support.documents import Block, Page, current

EXAMPLES = [
    pytest.param(page, block, id=f"{page.path}:{block.line}")
    for page in current()
    for block in page.blocks
    if block.language == "python" and "holdfast_airflow" in block.text
]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 9


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_an_example_is_executed_and_serialized(page: Page, block: Block) -> None:
    """Operators without a DAG of their own are shown as part of one."""
    names: dict[str, Any] = {}
    with DAG("documented", schedule=None) as around:
        exec(compile(block.text, f"{page.path}:{block.line}", "exec"), names)  # noqa: S102 - ours
    made = [one for one in names.values() if isinstance(one, DAG)] or [around]
    for dag in made:
        assert dag.tasks
        assert DagSerialization.to_dict(dag)["dag"]["dag_id"] == dag.dag_id
