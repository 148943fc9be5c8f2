"""A task: one partition of an application, all its stores, and the commit protocol."""

from state_lib.task.batch import Batch, Puts
from state_lib.task.context import TaskContext
from state_lib.task.state_task import StateTask

__all__ = ["Batch", "Puts", "StateTask", "TaskContext"]
