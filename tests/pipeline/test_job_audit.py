"""audit finds the damage that a test has made, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.messages import message, table
from warren.pipeline.jobs.audit import by_range, compared, counted, duplicates, gaps, ranges

SIZE = 10


@pytest.mark.parametrize("seed", range(2))
def test_gaps_and_duplicates_are_those_that_were_made(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    there = sorted(chance.sample(range(200), 120))
    twice = chance.sample(there, 5)
    counts = counted(table(spark, [message("orders", offset) for offset in [*there, *twice]]))
    holes = [(a + 1, b - 1, b - a - 1) for a, b in pairwise(there) if b - a > 1]
    found = gaps(counts, SIZE).select("first_missing", "last_missing", "missing").collect()
    assert list(map(tuple, found)) == holes
    assert [row["offset"] for row in duplicates(counts).collect()] == sorted(twice)
    wanted = Counter(offset // SIZE * SIZE for offset in [*there, *twice])
    assert {row["range"]: row["messages"] for row in ranges(counts, SIZE).collect()} == wanted
    assert sum(row["duplicates"] for row in ranges(counts, SIZE).collect()) == len(twice)


def test_archive_is_compared_with_what_is_live_offset_by_offset(spark: SparkSession) -> None:
    """The stream has 20 to 59 without 33; the archive has 0 to 49 without 41, and another message at 45."""
    live = [message("orders", n, body=b"%d" % n) for n in range(20, 60) if n != 33]
    stored = [message("orders", n, body=b"%d" % n if n != 45 else b"?") for n in [*range(50)] if n != 41]
    frames = [counted(table(spark, rows), contents=True) for rows in (live, stored)]
    verdicts = compared(*frames)
    found = {row["offset"]: row["verdict"] for row in verdicts.collect()}
    wanted = dict.fromkeys(range(20), "gone_by_retention") | dict.fromkeys(range(50, 60), "not_archived_yet")
    wanted |= dict.fromkeys(range(20, 50), "same")
    wanted |= {33: "missing_in_live", 41: "missing_in_archive", 45: "different"}
    assert found == wanted
    ten = {row["range"]: row for row in by_range(verdicts, SIZE).collect()}[40]
    assert (ten["live"], ten["archived"], ten["same"], ten["missing_in_archive"], ten["different"]) == (
        10,
        9,
        8,
        1,
        1,
    )


def test_queue_that_was_never_archived_is_not_missing(spark: SparkSession) -> None:
    live = counted(table(spark, [message("orders", n) for n in range(3)]))
    verdicts = compared(live, counted(table(spark, []))).collect()
    assert {row["verdict"] for row in verdicts} == {"not_archived_yet"}


def test_one_offset_of_several_priorities_is_no_duplicate(spark: SparkSession) -> None:
    queue = [message("jobs", n, priority=priority) for n in range(3) for priority in (None, 1, 9)]
    counts = counted(table(spark, queue))
    assert duplicates(counts).collect() == []
    assert {row["verdict"] for row in compared(counts, counts).collect()} == {"same"}
    assert compared(counts, counts).count() == len(queue)
    twice = counted(table(spark, [*queue, message("jobs", 1, priority=9)]))
    assert [tuple(row) for row in duplicates(twice).collect()] == [("/", "jobs", 1, 2)]


def test_messages_of_a_stream_that_was_deleted_are_not_taken_for_those_of_the_next(
    spark: SparkSession,
) -> None:
    live = [message("orders", n, stream_id="x-2") for n in range(8)]
    stored = [message("orders", n, stream_id="x-1") for n in range(5)]
    before = [message("mail", n) for n in range(3)]  # by an earlier version
    now = [message("mail", n, stream_id="x-3") for n in range(3)]
    verdicts = compared(counted(table(spark, live + now)), counted(table(spark, stored + before))).collect()
    found = Counter((row["queue"], row["verdict"]) for row in verdicts)
    assert found == {
        ("orders", "not_archived_yet"): 8,
        ("orders", "of_another_stream"): 5,
        ("mail", "same"): 3,
    }
    both = counted(table(spark, stored + live))
    assert duplicates(both).collect() == []
    kinds = Counter(row["verdict"] for row in compared(counted(table(spark, live)), both).collect())
    assert kinds == {"same": 8, "of_another_stream": 5}
