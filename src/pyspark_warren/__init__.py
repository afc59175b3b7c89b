"""Where Spark finds the data source `warren` by itself: it looks for this in modules named `pyspark_…`."""

from warren.pipeline.source.source import WarrenSource as DefaultSource

__all__ = ["DefaultSource"]
