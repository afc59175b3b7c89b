"""`spark.read.format("warren")`, on a real Spark: what the unit tests of segments show comes out in rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql.pandas.types import to_arrow_schema

from tests.support.segment_api import SegmentApi
from tests.support.segments import START_MS, DataDirectory, message
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Int64, Table, Timestamp
from warren.pipeline import options_for
from warren.pipeline.failures import in_one_line
from warren.pipeline.segments.schema import SCHEMA

START = datetime.fromtimestamp(START_MS / 1000, UTC)
START_ISO_8 = (START + timedelta(milliseconds=8)).isoformat()
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


@pytest.fixture
def api(data: DataDirectory) -> Iterator[SegmentApi]:
    with SegmentApi(str(data.path)) as running:
        yield running


def load(spark: SparkSession, data: DataDirectory, subscribe: str, **options: str) -> DataFrame:
    reader = spark.read.format("warren").option("path", str(data.path)).option("subscribe", subscribe)
    return reader.options(**options).load()


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in rows.select("offset").collect())


def test_arrow_schema_is_that_of_spark(spark: SparkSession, data: DataDirectory) -> None:
    data.queue("s")
    assert to_arrow_schema(load(spark, data, "s").schema, timezone="UTC").equals(SCHEMA)


def test_row_has_all_that_the_message_has(spark: SparkSession, data: DataDirectory) -> None:
    death: Table = {
        "count": Int64(2),
        "queue": "q",
        "reason": "expired",
        "exchange": "",
        "time": Timestamp(START_MS // 1000),
    }
    properties = BasicProperties(
        content_type="text/plain",
        delivery_mode=2,
        priority=4,
        message_id="id",
        expiration="5000",
        headers={"n": 1, "nested": {"a": ["é"]}, "x-death": [{**death, "routing-keys": ["k"]}]},
    )
    data.queue("s").append([message(b"\xff\x00", properties, exchange="e", key="k"), message(b"")])
    full, bare = load(spark, data, "s").orderBy("offset").collect()
    assert (full.vhost, full.queue, full.offset, full.exchange, full.routing_key) == ("/", "s", 0, "e", "k")
    assert (full.content_type, full.delivery_mode, full.priority, full.message_id) == (
        "text/plain",
        2,
        4,
        "id",
    )
    assert (full.expiration, bytes(full.body)) == ("5000", b"\xff\x00")
    assert (full.headers["n"], full.headers["nested"]) == ("1", '{"a":["é"]}')
    assert full.timestamp.timestamp() == START_MS / 1000
    (found,) = full.x_death
    assert (found["count"], found.reason, found.routing_keys, found.original_expiration) == (
        2,
        "expired",
        ["k"],
        None,
    )
    assert (bare.message_id, bare.headers, bare.x_death, bytes(bare.body)) == (None, None, None, b"")


def test_queue_is_a_snapshot_of_what_waits(spark: SparkSession, data: DataDirectory) -> None:
    queue = data.queue("q", kind="quorum")
    queue.ack(queue.append(5), [0, 3])
    queue.append(1, part="priority-9")
    assert offsets(load(spark, data, "q")) == [1, 2, 4, 5]


def test_columns_that_are_not_wanted_are_null(spark: SparkSession, data: DataDirectory) -> None:
    data.queue("s").append([message(b"x", BasicProperties(headers={"a": 1}))])
    (row,) = load(spark, data, "s", includeHeaders="false", includeBody="false").collect()
    assert (row.headers, row.body) == (None, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"s": 2}', "endingOffsets": '{"s": 5}'}, range(2, 5)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"startingTimestamp": str(START_MS + 4)}, range(4, 7)),
        ({"endingTimestamp": (START + timedelta(milliseconds=3)).isoformat()}, range(3)),
        ({"minPartitions": "5"}, range(7)),
    ],
)
def test_offsets_and_times_are_kept(
    spark: SparkSession, data: DataDirectory, options: dict[str, str], expected: range
) -> None:
    stream = data.queue("s")
    stream.append(3)
    stream.append(4)
    rows = load(spark, data, "s", **options)
    assert offsets(rows) == list(expected)
    if "minPartitions" in options:
        assert rows.rdd.getNumPartitions() >= 5


@pytest.fixture(params=["false", "true"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark hands filters to sources, as a user's own session may have it, or not."""
    spark.conf.set(PUSHDOWN, request.param)
    yield
    spark.conf.unset(PUSHDOWN)


def test_our_sessions_do_not_let_spark_hand_filters_down(spark: SparkSession) -> None:
    assert spark.conf.get(PUSHDOWN) == "false"


@pytest.mark.usefixtures("pushdown")
def test_filters_of_one_query_do_not_stick_to_the_dataframe(spark: SparkSession, data: DataDirectory) -> None:
    data.queue("a").append(20)
    data.queue("b").append(7)
    rows = load(spark, data, "a,b")
    first = rows.where("offset < 5")
    for _ in range(2):
        assert rows.where("queue = 'a' and offset < 10").count() == 10
        assert rows.count() == 27
        assert rows.where(F.col("timestamp") > F.lit(START + timedelta(milliseconds=17))).count() == 2
        assert rows.where("queue = 'b'").count() == 7
        assert (first.count(), first.where("queue = 'b' and offset > 3").count()) == (10, 1)
        assert offsets(rows) == sorted([*range(20), *range(7)])


@pytest.mark.usefixtures("pushdown")
def test_dataframe_can_be_joined_and_united_with_itself(spark: SparkSession, data: DataDirectory) -> None:
    data.queue("s").append(20)
    rows = load(spark, data, "s")
    low, high = rows.where("offset < 5"), rows.where("offset >= 12")
    for _ in range(2):
        assert offsets(low.unionByName(high)) == [*range(5), *range(12, 20)]
        assert offsets(low.unionByName(rows)) == sorted([*range(5), *range(20)])
        assert rows.alias("x").join(low.alias("y"), F.col("x.offset") == F.col("y.offset") + 15).count() == 5
        assert low.join(high, "queue").count() == 40
        assert rows.join(low, "offset", "left_anti").count() == 15


@pytest.mark.usefixtures("pushdown")
def test_views_are_the_same_whoever_asked_before(spark: SparkSession, data: DataDirectory) -> None:
    data.queue("s").append(20)
    load(spark, data, "s").createOrReplaceTempView("messages")
    for _ in range(2):
        assert spark.sql("select offset from messages where offset < 3").count() == 3
        assert spark.sql("select offset from messages").count() == 20
        both = "select a.offset from messages a join messages b using (offset) where a.offset > 15"
        assert spark.sql(both).count() == 4
        assert (
            spark.sql("select * from messages where offset in (select offset + 10 from messages)").count()
            == 10
        )
    spark.catalog.dropTempView("messages")


def test_condition_makes_options_that_spare_reading(spark: SparkSession, data: DataDirectory) -> None:
    kept, other = data.queue("kept"), data.queue("other")
    segments = [kept.append(3), kept.append(3), kept.append(3)]
    other.append(5).write_bytes(b"damaged, and must not be read" * 3)
    segments[0].write_bytes(b"damaged, and must not be read" * 3)
    condition = f"queue = 'kept' and offset >= 3 and offset < 80 and timestamp < '{START_ISO_8}'"
    reader = spark.read.format("warren").option("path", str(data.path)).options(**options_for(condition))
    assert offsets(reader.load().where(condition)) == [3, 4, 5, 6, 7]


def test_pattern_reads_all_queues_that_match(spark: SparkSession, data: DataDirectory) -> None:
    for name in ("orders.eu", "orders.us", "other"):
        data.queue(name).append(1)
    reader = spark.read.format("warren").option("path", str(data.path))
    rows = reader.option("subscribePattern", r"orders\..*").load()
    assert sorted(row.queue for row in rows.collect()) == ["orders.eu", "orders.us"]


def test_http_gives_the_same_rows_as_files(spark: SparkSession, data: DataDirectory, api: SegmentApi) -> None:
    stream = data.queue("s")
    stream.append(40)
    stream.append(2)
    reader = spark.read.format("warren").option("url", api.url).option("subscribe", "s")
    by_http = reader.option("minPartitions", "3").load().orderBy("offset").collect()
    assert by_http == load(spark, data, "s").orderBy("offset").collect()
    assert len(by_http) == 42


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "no"}, "no queue 'no' in vhost '/': change the option subscribe"),
        ({"startingOffsets": "{"}, "startingOffsets must be earliest, latest, a number or JSON"),
        ({"startingOffsets": '{"s": 9}'}, "offset 9 of stream 's' is behind its end, 2"),
        ({"path": "/no/such/directory"}, "/no/such/directory: no such directory: change the option path"),
        ({"path": None, "url": "http://127.0.0.1:1"}, "no broker answers at http://127.0.0.1:1: "),
    ],
)
def test_error_is_one_clear_line(
    spark: SparkSession, data: DataDirectory, options: dict[str, str | None], told: str
) -> None:
    data.queue("s").append(2)
    given = {"path": str(data.path), "subscribe": "s", **options}
    reader = spark.read.format("warren").options(**{k: v for k, v in given.items() if v is not None})
    with pytest.raises(PySparkException) as raised:
        reader.load().count()
    assert in_one_line(raised.value).startswith(told)


def test_schema_chooses_columns_and_their_order(spark: SparkSession, data: DataDirectory) -> None:
    data.queue("s").append(3)
    reader = spark.read.format("warren").options(path=str(data.path), subscribe="s")
    rows = reader.schema("body binary, offset long").load()
    assert rows.columns == ["body", "offset"]
    assert [(bytes(body), offset) for body, offset in rows.collect()] == [(b"m%d" % i, i) for i in range(3)]
    assert reader.schema("offset long not null").load().agg({"offset": "sum"}).first() == (3,)
    with pytest.raises(PySparkException, match="has a column 'no', which is none of"):
        reader.schema("no string").load().collect()


def test_dataframe_is_what_was_there_at_its_first_action_and_a_new_one_the_present(
    spark: SparkSession, data: DataDirectory
) -> None:
    stream = data.queue("s")
    stream.append(3)
    reader = spark.read.format("warren").options(path=str(data.path), subscribe="s")
    rows = reader.load()
    assert rows.count() == 3
    stream.append(2)
    assert (rows.count(), reader.load().count()) == (3, 5)


def test_views_in_sql_have_their_options_and_tables_get_them_with_each_select(
    spark: SparkSession, data: DataDirectory
) -> None:
    data.queue("s").append(3)
    options = f"path '{data.path}', subscribe 's'"
    spark.sql(f"CREATE TEMPORARY VIEW orders USING warren OPTIONS ({options})")
    spark.sql("CREATE TABLE shop USING warren")
    try:
        assert spark.sql("SELECT count(*), max(offset) FROM orders").first() == (3, 2)
        chosen = f"WITH (`path` = '{data.path}', `subscribe` = 's')"
        assert spark.sql(f"SELECT count(*) FROM shop {chosen}").first() == (3,)  # noqa: S608 - our own path
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW v USING warren OPTIONS"):
            spark.sql("SELECT * FROM shop").collect()
        with pytest.raises(
            PySparkException, match=r"a table of WarrenMQ takes no options: .*SELECT … FROM t"
        ):
            spark.sql(f"CREATE TABLE other USING warren OPTIONS ({options})")
    finally:
        spark.sql("DROP TABLE shop")
        spark.sql("DROP VIEW orders")
