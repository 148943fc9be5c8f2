"""Pipelines tested in one process, by Kafka Streams' words: no broker, no host, no port.

Tasks, their commits, merging and judging are those of production; only the log below them is in
memory (`state_lib.changelog.memory`), and they are called instead of reached over the network.
"""

from state_lib.testing.driver import TopologyTestDriver
from state_lib.testing.session import local_session
from state_lib.testing.topics import DeadLetter, TestInputTopic, TestOutputTopic, TestRecord
from state_lib.testing.views import KeyValueStoreView, WindowStoreView

__all__ = [
    "DeadLetter",
    "KeyValueStoreView",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "WindowStoreView",
    "local_session",
]
