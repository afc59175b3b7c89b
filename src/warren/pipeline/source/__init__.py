"""The data source `warren` of Spark: `spark.read.format("warren")`, `readStream` and `write`. Needs pyspark."""
