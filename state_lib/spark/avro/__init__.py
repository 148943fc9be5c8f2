"""Topics in Avro as a job declares them, and their columns: docs/adr/0025."""
