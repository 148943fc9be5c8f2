"""Records in Avro, decoded by executors: docs/adr/0025."""
