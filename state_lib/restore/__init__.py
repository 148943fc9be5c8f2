"""Brings a task's stores to the end of their changelogs, from the cheapest valid source."""
