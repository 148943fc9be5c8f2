"""Applications that cannot be asked about are not left out."""

from __future__ import annotations

import pytest

from state_lib.apps import catalogue
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from state_lib.stack.ports import free_port


def test_a_claim_that_cannot_be_read_is_no_missing_application() -> None:
    nobody = Kafka({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0})
    assert catalogue._claim(nobody, "no name of ours") is None
    with pytest.raises(Unavailable):
        catalogue._claim(nobody, "flights")
