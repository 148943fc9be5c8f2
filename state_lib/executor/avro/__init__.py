"""Avro records with schemas from a Schema Registry: docs/adr/0025.

A value is the byte 0, the id of its writer's schema (4 bytes, big-endian), and Avro's binary form:
Confluent's wire format, which other registries use as well.
"""
