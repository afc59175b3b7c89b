"""The data pipeline: queues and streams as tables of Spark, and the jobs over them."""

from warren.pipeline.archive_files import archive_files
from warren.pipeline.condition import options_for

__all__ = ["archive_files", "options_for"]
