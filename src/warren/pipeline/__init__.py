"""The data pipeline: queues and streams as tables of Spark, and the jobs over them."""

from warren.pipeline.condition import options_for

__all__ = ["options_for"]
