"""Gathers from Kafka, hosts and storage what `state_lib.checks` judges."""
