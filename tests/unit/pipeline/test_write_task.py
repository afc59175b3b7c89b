"""A task of a write: its messages reach the broker, and its failed rows the side table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.process import Address
from warren.pipeline.errors import PipelineError
from warren.pipeline.sink.options import WriteOptions, read_options
from warren.pipeline.sink.task import Written, write_rows


@pytest.fixture
def queue(broker: Address) -> Iterator[str]:
    name = f"task-{uuid.uuid4()}"
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        yield name
        channel.queue_delete(name)


def options_of(broker: Address, **options: str) -> WriteOptions:
    return read_options({"amqp": broker.url(), "exchange": ""} | options)


def batch(*keys: str) -> pa.RecordBatch:
    return pa.record_batch({"body": [key.encode() for key in keys], "routing_key": list(keys)})


def test_rows_of_all_batches_are_written_and_counted(broker: Address, queue: str) -> None:
    written = write_rows([batch(queue, queue), batch(), batch(queue)], options_of(broker), "job/0")

    assert written == Written(rows=3, confirmed=3, failed=0)


def test_task_without_rows_needs_no_broker() -> None:
    options = read_options({"amqp": "amqp://127.0.0.1:1", "exchange": ""})

    assert write_rows([], options, "job/0") == Written(0, 0, 0)


def test_row_that_no_queue_takes_ends_the_write_and_the_option_for_it_is_named(broker: Address) -> None:
    with pytest.raises(PipelineError) as caught:
        write_rows([batch("nowhere")], options_of(broker), "job/0")

    text = str(caught.value)
    assert "'job/0/0' to exchange '' with routing key 'nowhere': 312 NO_ROUTE" in text
    assert "Option errors" in text


def test_rows_that_no_queue_takes_go_to_the_side_table_of_the_option(
    broker: Address, queue: str, tmp_path: Path
) -> None:
    options = options_of(broker, errors=str(tmp_path / "errors"))

    for _ in range(2):  # a task that runs again leaves the same file
        written = write_rows([batch(queue, "nowhere"), batch("gone", queue)], options, "query/7/0")

    assert written == Written(rows=4, confirmed=2, failed=2)
    assert [path.name for path in (tmp_path / "errors").iterdir()] == ["part-query-7-0.parquet"]
    assert pq.read_table(tmp_path / "errors").to_pylist() == [
        {
            "vhost": "/",
            "exchange": "",
            "routing_key": key,
            "message_id": f"query/7/0/{row}",
            "reason": "312 NO_ROUTE",
            "body": key.encode(),
        }
        for row, key in [(1, "nowhere"), (2, "gone")]
    ]


def test_task_whose_rows_all_find_a_queue_when_it_runs_again_leaves_no_side_table(
    broker: Address, queue: str, tmp_path: Path
) -> None:
    options = options_of(broker, errors=str(tmp_path / "errors"))
    assert write_rows([batch("nowhere")], options, "query/7/0").failed == 1
    assert write_rows([batch(queue)], options, "query/7/0").failed == 0
    assert list((tmp_path / "errors").iterdir()) == []


def test_row_that_no_queue_takes_is_told_from_another_with_its_id(
    broker: Address, queue: str, tmp_path: Path
) -> None:
    options = options_of(broker, errors=str(tmp_path / "errors"))
    rows = batch(queue, "nowhere", queue).append_column("message_id", pa.array(["same"] * 3))
    assert write_rows([rows], options, "job/0") == Written(rows=3, confirmed=2, failed=1)
    assert pq.read_table(tmp_path / "errors").column("routing_key").to_pylist() == ["nowhere"]


def test_write_that_fails_leaves_no_side_table(
    broker: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.pipeline.sink.failures.ROWS_MAX", 1)
    options = options_of(broker, errors=str(tmp_path / "errors"), window="1")
    bad = pa.record_batch({"body": pa.array([None], pa.binary()), "routing_key": ["x"]})

    with pytest.raises(PipelineError, match="body is null"):
        write_rows([batch("nowhere", "nowhere"), bad], options, "job/0")

    assert list((tmp_path / "errors").iterdir()) == []


def test_side_table_in_an_unknown_place_is_an_error_that_names_the_option(broker: Address) -> None:
    with pytest.raises(PipelineError, match="option errors"):
        write_rows([], options_of(broker, errors="nonsense://x"), "job/0")
