"""The data pipeline: queues and streams as tables of Spark, and the jobs over them."""
