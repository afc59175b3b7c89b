"""Each program in `examples/` does and prints what its docstring says. The Spark job is tested with Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, path_of, run_example, told
from tests.support.process import Address

pytestmark = pytest.mark.timeout(300)
README = EXAMPLES.parent / "README.md"
RUNS = [1, 2]
"""The second time there are the queues that the first has left."""


def printed_by(example: str, broker: Address, home: Path) -> list[str]:
    return run_example(path_of(example), home=home, AMQP_URL=broker.url())


@pytest.mark.parametrize("example", ["rpc", "stream_offsets", "celery_tasks"])
def test_example_prints_what_its_docstring_says(example: str, broker: Address, tmp_path: Path) -> None:
    for _ in RUNS:
        assert printed_by(example, broker, tmp_path) == told(example)


def test_work_queue_gives_each_task_to_a_worker_and_that_of_the_dead_one_to_another(
    broker: Address, tmp_path: Path
) -> None:
    for _ in RUNS:
        died, *done, result = printed_by("work_queue", broker, tmp_path)
        assert died == "a worker took task 0 and died"
        assert sorted(line.partition(" did ")[2] for line in done) == [f"task {n}" for n in range(10)]
        assert [result] == told("work_queue")


def test_retry_waits_longer_each_time_and_ends_in_the_dead_letters(broker: Address, tmp_path: Path) -> None:
    for _ in RUNS:
        lines = printed_by("retry_with_backoff", broker, tmp_path)
        ends = [line for line in lines if ": attempt" not in line]
        assert sorted(ends) == sorted(told("retry_with_backoff"))
        attempts = [re.fullmatch(r"(\w+): attempt (\d)(?:, ([\d.]+) s after .*)?", line) for line in lines]
        waits = {(m[1], int(m[2])): float(m[3] or 0) for m in attempts if m}
        assert [number for task, number in waits if task == "flaky"] == [1, 2, 3]
        assert [number for task, number in waits if task == "broken"] == [1, 2, 3, 4]
        assert all(
            wait >= 0.1 * 2 ** (number - 2) - 0.02 for (_, number), wait in waits.items() if number > 1
        )


def test_messages_of_a_group_come_in_order_to_one_of_the_consumers(broker: Address, tmp_path: Path) -> None:
    for _ in RUNS:
        *steps, counts = printed_by("message_groups", broker, tmp_path)
        assert steps == told("message_groups")[:-1]
        assert sum(map(int, re.findall(r"had (\d+)", counts))) == 16


def test_delayed_messages_arrive_when_they_are_due(broker: Address, tmp_path: Path) -> None:
    line_form = re.compile(r"after ([\d.]+) s: (.*)")
    for _ in RUNS:
        lines = printed_by("delayed_messages", broker, tmp_path)
        arrived = {m[2]: float(m[1]) for m in map(line_form.fullmatch, lines) if m}
        due = {m[2]: float(m[1]) for m in map(line_form.fullmatch, told("delayed_messages")) if m}
        assert arrived.keys() == due.keys()
        assert all(arrived[text] >= due[text] for text in due)


def test_asyncio_service_handles_all_orders_several_at_a_time(broker: Address, tmp_path: Path) -> None:
    for _ in RUNS:
        *events, result = printed_by("asyncio_service", broker, tmp_path)
        assert sorted(events) == [f"order {number} is paid" for number in range(10)]
        assert re.fullmatch(r"10 orders handled, [1-5] at a time", result)


def test_tests_of_a_project_pass_against_a_broker_of_their_own(tmp_path: Path) -> None:
    lines = run_example(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", path_of("test_with_a_broker"), home=tmp_path
    )
    assert lines[-1].startswith("3 passed")


def test_readme_lists_every_example() -> None:
    listed = set(re.findall(r"\]\(examples/([^)]+)\)", README.read_text()))
    assert listed == {path.name for path in EXAMPLES.iterdir() if path.is_file()}
