"""Spark's own stateful processors, run in a task's exchange: docs/adr/0024."""
