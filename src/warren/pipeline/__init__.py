"""The data pipeline: Spark reads queues and streams as tables, and jobs run over those tables."""

from warren.pipeline.archive_files import archive_files
from warren.pipeline.condition import options_for

__all__ = ["archive_files", "options_for"]
