"""Spark's data source `warren`: `spark.read.format("warren")`, `readStream` and `write`. Needs pyspark."""
