"""The local stack: Kafka, state hosts and Airflow on one machine, under a supervisor."""

from state_lib.stack.broker import BrokerConfig, LocalBroker
from state_lib.stack.stack import Stack
from state_lib.stack.status import ServiceStatus, StackStatus

__all__ = ["BrokerConfig", "LocalBroker", "ServiceStatus", "Stack", "StackStatus"]
