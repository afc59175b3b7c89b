"""Rows of Spark as messages: the writing half of the data source `warren`."""
