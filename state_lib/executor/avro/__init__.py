"""Records in Avro, whose schemas are in a Schema Registry: docs/adr/0025.

A value is the byte 0, the id of the schema that it was written by (4 bytes, big-endian), and Avro's
binary form: Confluent's wire format, which other registries write as well.
"""
