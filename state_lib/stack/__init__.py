"""The local stack: Kafka and state hosts on one machine, under a supervisor."""

from state_lib.stack.broker import BrokerConfig, LocalBroker

__all__ = ["BrokerConfig", "LocalBroker"]
