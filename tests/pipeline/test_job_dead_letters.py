"""dead-letters against a plain computation over the same messages."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.messages import START, Message, death, message, table
from warren.pipeline.jobs.dead_letters import causes, deaths, letters, loops, times_to_death, write_days

REASONS = ("rejected", "expired", "maxlen", "delivery_limit")


def some_letters(seed: int, count: int) -> list[Message]:
    """Messages in a queue of dead letters, over two days; some of them never died."""
    chance = random.Random(seed)
    found = []
    for offset in range(count):
        places = [(queue, reason) for queue in ("work", "mail") for reason in REASONS]
        died = [
            death(queue, reason, count=chance.randrange(1, 7), expiration=chance.choice([None, "1500"]))
            for queue, reason in chance.sample(places, chance.randrange(4))
        ]
        plain = message("dead", offset * 4, message_id=f"m{offset}", x_death=died or None)
        sent = int(plain["timestamp"].timestamp() * 1000) - chance.randrange(10_000)
        plain["headers"] = chance.choice([None, {"timestamp_in_ms": str(sent)}])
        found.append(plain)
    return found


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return some_letters(1, 300)


@pytest.fixture(scope="module")
def entries(spark: SparkSession, messages: list[Message]) -> DataFrame:
    return deaths(letters(table(spark, messages)))


def plain_deaths(messages: list[Message]) -> list[tuple[Message, dict[str, Any]]]:
    return [(plain, entry) for plain in messages for entry in plain["x_death"] or []]


def test_causes_count_messages_and_deaths(messages: list[Message], entries: DataFrame) -> None:
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for _, entry in plain_deaths(messages):
        wanted[entry["queue"], entry["reason"]].append(entry["count"])
    found = {(row["died_in"], row["reason"]): row for row in causes(entries).collect()}
    assert found.keys() == wanted.keys()
    for key, counts in wanted.items():
        row = found[key]
        assert (row["messages"], row["deaths"], row["most"]) == (len(counts), sum(counts), max(counts))
        assert (row["vhost"], row["published_to"]) == ("/", "shop")


def test_loops_are_messages_that_died_in_one_queue_more_than_so_often(
    messages: list[Message], entries: DataFrame
) -> None:
    often = [(entry["queue"], entry["reason"]) for _, entry in plain_deaths(messages) if entry["count"] > 4]
    found = {(row["died_in"], row["reason"]): row["messages"] for row in loops(entries, 4).collect()}
    assert found == Counter(often)


def life_ms(plain: Message) -> int | None:
    """How long a message lived, by the publisher's time, or by its expiration if it died only of that."""
    sent = (plain["headers"] or {}).get("timestamp_in_ms")
    if sent is not None:
        return int(plain["timestamp"].timestamp() * 1000) - int(sent)
    first = plain["x_death"][0]
    alone = len(plain["x_death"]) == 1 and first["count"] == 1 and first["reason"] == "expired"
    return int(first["original_expiration"]) if alone and first["original_expiration"] else None


def test_time_to_death_is_of_the_newest_death(messages: list[Message], entries: DataFrame) -> None:
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for plain in messages:
        if plain["x_death"] and (life := life_ms(plain)) is not None:
            wanted[plain["x_death"][0]["queue"], plain["x_death"][0]["reason"]].append(life)
    found = {(row["died_in"], row["reason"]): row for row in times_to_death(entries).collect()}
    assert found.keys() == wanted.keys()
    for key, lives in wanted.items():
        row, ordered = found[key], sorted(lives)
        assert (row["messages"], row["min_ms"], row["max_ms"]) == (len(lives), ordered[0], ordered[-1])
        assert row["p50_ms"] == ordered[-(-len(lives) // 2) - 1]


def test_expiration_of_its_own_is_the_life_of_a_letter_that_died_once(spark: SparkSession) -> None:
    cases = [
        ([death("work", "expired", expiration="1500")], 1500),
        ([death("work", "expired")], None),
        ([death("work", "expired", count=2, expiration="1500")], None),
        ([death("work", "rejected", expiration="1500")], None),
        ([death("work", "expired", expiration="1500"), death("mail", "rejected")], None),
    ]
    dead = [message("dead", offset, x_death=died) for offset, (died, _) in enumerate(cases)]
    found = letters(table(spark, dead)).select("offset", "life_ms").collect()
    assert dict(map(tuple, found)) == {offset: life for offset, (_, life) in enumerate(cases)}


def test_property_timestamp_is_the_begin_of_a_life(spark: SparkSession) -> None:
    dead = message("dead", 4, x_death=[death("work", "expired", expiration="1500")], published_at=START)
    assert letters(table(spark, [dead])).collect()[0]["life_ms"] == 4_000


def test_days_are_replaced_and_others_stay(
    spark: SparkSession, messages: list[Message], entries: DataFrame, tmp_path: Path
) -> None:
    to = str(tmp_path / "days")
    write_days(entries, to)
    second = [plain for plain in messages if plain["timestamp"].day == 2]
    write_days(deaths(letters(table(spark, second[:1]))), to)
    wanted: Counter[int] = Counter()
    kept = [plain for plain in messages if plain["timestamp"].day == 1] + second[:1]
    for plain, entry in plain_deaths(kept):
        wanted[plain["timestamp"].day] += entry["count"]
    found = spark.read.parquet(to).groupBy("day").sum("deaths").collect()
    assert {row[0].day: row[1] for row in found} == {day: count for day, count in wanted.items() if count}
