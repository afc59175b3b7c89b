"""A program with a query that has no end: a stream to Parquet files, by readStream and a checkpoint.

python endless_query.py DIRECTORY OPTION=VALUE…
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.pipeline.conftest import CONF
from warren.pipeline.session import open_session


def start(spark: SparkSession, place: str, options: dict[str, str], **trigger: bool) -> StreamingQuery:
    given = options if "consume" in options else {"startingOffsets": "earliest", **options}
    messages = spark.readStream.format("warren").options(**given).load()
    writer = messages.writeStream.format("parquet").option("checkpointLocation", f"{place}/_checkpoint")
    return (writer.trigger(**trigger) if trigger else writer).start(place)


if __name__ == "__main__":
    session = open_session(app_name="endless", master="local[2]", conf=CONF)
    start(session, sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])).awaitTermination()
