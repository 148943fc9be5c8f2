"""Runs Spark's own stateful processors, and folds, in a task's exchange: docs/adr/0024."""
