"""The jobs of the pipeline, one a module: functions from tables to tables, and `run`, which a command calls.

Each module has `add_arguments(parser)` and `run(spark, options, progress) -> Result`. The functions use
DataFrames alone, so that they run on any Spark, through Spark Connect as well.
"""
