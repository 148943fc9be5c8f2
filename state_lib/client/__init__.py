"""Clients of state hosts: the exchange that commits, scans, and queries that route themselves."""
