"""What a driver does beside Spark: claims, records, clocks. No PySpark is imported here."""
