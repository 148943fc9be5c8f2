"""Runs Spark's own stateful processors in a task's exchange. (docs/adr/0024)"""
