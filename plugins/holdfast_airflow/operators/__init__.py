"""Operators: start, stop and load streams, verify and restore their state."""
