"""The jobs of the pipeline, one a module: functions from tables to tables, and `run`, which a command calls.

A job's module has `add_arguments(parser)`, `check(options)`, which raises before Spark starts, and
`run(spark, options, progress) -> JobResult`. The functions use only DataFrames, so that they run on any
Spark, also through Spark Connect.
"""
