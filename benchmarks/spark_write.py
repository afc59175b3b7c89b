"""How fast one task of a Spark write publishes: rows of Arrow to messages that the broker has confirmed.

Without Spark itself, whose part is to hand over the batches. A broker is started and stopped here. Each
figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from warren.amqp.methods import QueueDeclare, QueueDeclareOk, QueuePurge, QueuePurgeOk
from warren.client.connection import Connection
from warren.client.dialogue import ask
from warren.pipeline.demo.broker import DemoBroker
from warren.pipeline.sink.options import read_options
from warren.pipeline.sink.task import write_rows

QUEUE = "written"
BATCH_ROWS = 10_000
HEADERS = pa.map_(pa.string(), pa.string())


def batch(body_bytes: int, *, headers: bool) -> pa.RecordBatch:
    columns = {"body": [bytes(body_bytes)] * BATCH_ROWS, "routing_key": [QUEUE] * BATCH_ROWS}
    if headers:
        rows = [[("shop", "north"), ("number", str(row % 1000))] for row in range(BATCH_ROWS)]
        columns["headers"] = pa.array(rows, HEADERS)
    return pa.record_batch(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=200, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, DemoBroker(Path(place)) as broker:
        for headers in (False, True):
            for window in (1_000, 10_000):
                rates = [
                    measure(broker, options, headers=headers, window=window) for _ in range(options.rounds)
                ]
                what = "with headers" if headers else "body only   "
                print(f"{what}  window {window:>6,}  {statistics.median(rates):>10,.0f} messages a second")


def measure(broker: DemoBroker, options: argparse.Namespace, *, headers: bool, window: int) -> float:
    batches = [batch(options.size, headers=headers)] * (options.messages // BATCH_ROWS)
    amqp = f"amqp://{broker.uri.address}"
    target = read_options({"amqp": amqp, "exchange": "", "window": str(window)})
    with Connection(broker.uri, product="benchmark") as connection:
        connection.talk(ask(QueueDeclare(queue=QUEUE, durable=True, arguments={}), QueueDeclareOk))
        connection.talk(ask(QueuePurge(queue=QUEUE), QueuePurgeOk))
    began_s = time.monotonic()
    written = write_rows(batches, target, "benchmark")
    return written.confirmed / (time.monotonic() - began_s)


if __name__ == "__main__":
    main()
