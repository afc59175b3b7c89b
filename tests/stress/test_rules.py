"""Very many messages under rules: all expire, each once, and nobody else notices; groups keep their order.

RULES_MESSAGES=1000000 RULES_SPREAD_MS=20000 is the full size, RULES_KINDS=transient,persistent,mixed are all
kinds. With -s, how long it took is printed.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.stress.conftest import WAIT_SECONDS_MAX, Connect, message_count
from tests.stress.group_consumers import PREFETCH, QUEUE, Crowd, publish_groups
from tests.stress.pinger import Trips, pinging
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import published
from tests.support.process import BrokerProcess
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties
from warren.amqp.table import Table

MESSAGES = int(os.environ.get("RULES_MESSAGES", "100000"))
SPREAD_MS = int(os.environ.get("RULES_SPREAD_MS", "4000"))
LEAST_MS = 1_000 if SPREAD_MS < 9_000 else 10_000
"""All expirations have as many digits, so that a message is made by filling in numbers."""

MODES = {"transient": [TRANSIENT], "persistent": [PERSISTENT], "mixed": [TRANSIENT, PERSISTENT]}
KINDS = os.environ.get("RULES_KINDS", "mixed").split(",")
TEST_SECONDS_MAX = 120 + (MESSAGES // 1_000 + SPREAD_MS // 100)

AT_A_TIME = 1_777  # so that turns end anywhere
BODY = re.compile(rb"#(\d{8})(\d{13})!")
GROUPS = 10_000
CONSUMERS = 8
GROUP_MESSAGES = MESSAGES * 3 // 10

TO_DEAD: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def publish_expiring(channel: AmqpChannel, modes: list[int], spread_ms: int) -> None:
    """To `q`, from number 0 on; each body has its number and when it expires."""
    rng = random.Random(1)
    body = b"#" + b"N" * 8 + b"D" * 13 + b"!"
    marker = "9" * len(str(LEAST_MS))
    templates = []
    for mode in modes:
        properties = BasicProperties(delivery_mode=mode, expiration=marker)
        words = published("", "q", body, properties, channel=channel.number)
        head, rest = words.split(marker.encode())
        middle, tail = rest.split(b"N" * 8 + b"D" * 13)
        templates.append((head, middle, tail))
    for start in range(0, MESSAGES, AT_A_TIME):
        now_ms = int(time.time() * 1000)
        some = []
        for number in range(start, min(start + AT_A_TIME, MESSAGES)):
            ttl_ms = LEAST_MS + rng.randrange(spread_ms)
            head, middle, tail = templates[number % len(templates)]
            some.append(b"%b%d%b%08d%013d%b" % (head, ttl_ms, middle, number, now_ms + ttl_ms, tail))
        channel.client.send_raw(b"".join(some))


def take_letters(channel: AmqpChannel, count: int) -> tuple[list[int], list[int]]:
    """So many dead letters: their numbers, and how many milliseconds each came after its time."""
    client = channel.client
    numbers: list[int] = []
    delays_ms: list[int] = []
    data = b""
    while len(numbers) < count:
        client._receive(time.monotonic() + WAIT_SECONDS_MAX)
        data += bytes(client._received)
        client._received.clear()
        now_ms = int(time.time() * 1000)
        end = 0
        for found in BODY.finditer(data):
            numbers.append(int(found[1]))
            delays_ms.append(now_ms - int(found[2]))
            end = found.end()
        data = data[end:]
    return numbers, delays_ms


def cpu_seconds(process: BrokerProcess) -> float:
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Report:
    """What it took the broker, since this was made."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.begin = time.monotonic()
        self.cpu_begin = cpu_seconds(process)
        self.resident_bytes = process.resident_bytes()

    def show(self, what: str, trips: Trips, delays_ms: list[int]) -> None:
        seconds = time.monotonic() - self.begin
        cpu = cpu_seconds(self.process) - self.cpu_begin
        grown = (self.process.resident_bytes() - self.resident_bytes) >> 20
        delays = sorted(delays_ms) or [0]
        late = sum(delay > 100 for delay in delays) / len(delays)
        print(  # noqa: T201 - for whoever runs it with -s
            f"\n{what}: {seconds:.1f} s, {cpu:.1f} s of CPU, {grown} MiB more, {trips.trips} round trips,"
            f" median {trips.median_ms:.2f}, p99 {trips.p99_ms:.2f}, longest {trips.longest_ms:.1f} ms;"
            f" letters came after median {delays[len(delays) // 2]}, p99 {delays[len(delays) * 99 // 100]},"
            f" last {delays[-1]} ms, {late:.1%} of them after more than 100 ms"
        )


@pytest.mark.timeout(TEST_SECONDS_MAX)
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_that_expires_is_one_dead_letter(
    process: BrokerProcess, connect: Connect, kind: str
) -> None:
    modes = MODES[kind]
    publisher, taker = connect().channel(), connect().channel()
    publisher.declare("dead", exclusive=False, durable=PERSISTENT in modes)
    publisher.declare("q", exclusive=False, durable=PERSISTENT in modes, arguments=TO_DEAD)
    taker.consume("dead", no_ack=True)
    report = Report(process)
    with pinging(process.address) as pinger:
        publish_expiring(publisher, modes, SPREAD_MS)
        numbers, delays_ms = take_letters(taker, MESSAGES)
        assert message_count(publisher, "q") == 0
        assert message_count(publisher, "dead") == 0
    report.show(kind, pinger.trips, delays_ms)
    assert sorted(numbers) == list(range(MESSAGES))
    assert min(delays_ms) >= -1  # each clock is cut to whole milliseconds


@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_all_messages_expire_though_nobody_looks(process: BrokerProcess, channel: AmqpChannel) -> None:
    channel.declare("q", exclusive=False, durable=True)
    report = Report(process)
    with pinging(process.address) as pinger:
        publish_expiring(channel, [TRANSIENT, PERSISTENT], SPREAD_MS // 4)
        deadline = time.monotonic() + (LEAST_MS + SPREAD_MS) / 1000 + WAIT_SECONDS_MAX
        while left := message_count(channel, "q"):
            assert time.monotonic() < deadline, f"{left} have not expired"
    report.show("not looked at", pinger.trips, [])
    assert channel.drain("q") == []


@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_groups_keep_their_order_whoever_comes_and_goes(tmp_path: Path) -> None:
    """Consumers stop, begin again and disconnect, and in the middle the broker is killed."""
    rng = random.Random(1)
    groups = [rng.randrange(GROUPS) for _ in range(GROUP_MESSAGES)]
    crowd = Crowd(CONSUMERS, rng)
    with closing(crowd):
        with BrokerProcess(tmp_path / "data") as process:
            with AmqpClient.connect(process.address) as publisher:
                publish_groups(publisher, groups)
            crowd.work(process.address, GROUP_MESSAGES // 2)
            process.kill()
            process.check_log()
        crowd.leave_all()
        with BrokerProcess(tmp_path / "data") as process:
            crowd.work(process.address, GROUP_MESSAGES)
            crowd.leave_all()
            with AmqpClient.connect(process.address) as client:
                left = client.channel().drain(QUEUE)
            process.check_log()
    assert len(left) <= CONSUMERS * PREFETCH  # acked when all left at once, and perhaps not heard any more
    assert crowd.seen == Counter(groups)
    print(f"\n{crowd.left} left, {crowd.came_again} came again")  # noqa: T201 - for whoever runs it with -s
