"""Stores to take snapshots of, and where to put them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.snapshots import Source


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path)
    yield made
    made.stores.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "storage").as_uri()
