"""What Spark's executors do with a task's rows; no server and no client of a broker is there."""
