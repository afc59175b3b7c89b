"""The writing half of the data source `warren`: publishes Spark's rows as messages."""
