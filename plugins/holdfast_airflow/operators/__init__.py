"""Operators: start, stop and load streams."""
