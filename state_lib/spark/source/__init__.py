"""``spark.read.format("holdfast")``: stores and their snapshots as DataFrames."""
