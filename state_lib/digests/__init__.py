"""Digests of stores over all hosts, and their comparison with what else holds the state."""
