"""Hooks: the way to Spark."""
