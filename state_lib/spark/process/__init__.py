"""Processors and folds as a job declares them, and the rows that they take: docs/adr/0024."""
