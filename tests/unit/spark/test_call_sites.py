"""PySpark's call sites of columns: private names, pinned to the version of it that is installed."""

from __future__ import annotations

import pytest
from pyspark.errors import utils

from state_lib.spark.sources import without_call_sites


@pytest.mark.parametrize("before", [None, True, False])
def test_they_are_as_before_after_a_build_that_failed(
    monkeypatch: pytest.MonkeyPatch, before: bool | None
) -> None:
    monkeypatch.setattr(utils, "_enable_debugging_cache", before)

    @without_call_sites()
    def build() -> None:
        assert not utils.is_debugging_enabled()
        raise ValueError("what was built")

    with pytest.raises(ValueError, match="built"):
        build()
    assert utils._enable_debugging_cache is before
