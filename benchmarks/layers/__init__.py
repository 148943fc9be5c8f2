"""Micro-benchmarks: how fast each layer is on its own, on one core."""
