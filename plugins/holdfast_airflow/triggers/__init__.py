"""Triggers: what runs while a task is deferred."""
