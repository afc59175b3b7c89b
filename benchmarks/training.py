"""Puts a short load on a broker whose compiled modules count which of their branches are taken.

The counts are written when the broker ends. `setup.py` compiles by them then. To be run by scripts/build.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

SECONDS = "1.5"
STOP_SECONDS_MAX = 60
CONFIRMED = ["--persistent", "--durable", "--confirm", "500"]
LOADS = (
    ["throughput", "--ack-every", "0"],
    ["throughput"],
    ["throughput", "--size", "1024", "--exchange", "amq.topic"],
    ["throughput", "--queues", "4", "--publishers", "4", "--consumers", "4"],
    ["throughput", "--publishers", "16"],
    ["throughput", *CONFIRMED],
    ["throughput", *CONFIRMED, "--queues", "20", "--publishers", "20", "--consumers", "20", "--size", "256"],
    ["throughput", *CONFIRMED, "--rate", "1000"],
)


def main() -> None:
    warren = [sys.executable, "-m", "warren"]
    with tempfile.TemporaryDirectory() as directory:
        words = ["serve", "--port=0", "--http-port=-1", f"--data-dir={directory}", "--log-level=error"]
        with subprocess.Popen([*warren, *words], stdout=subprocess.PIPE, text=True) as broker:
            try:
                assert broker.stdout is not None, "it is a pipe"
                address = dict(word.split("=") for word in broker.stdout.readline().split()[1:])["amqp"]
                for load in LOADS:
                    uri = f"amqp://guest:guest@{address}/"
                    words = ["perf", *load, "--seconds", SECONDS, "--warmup", "0", "--json", "--uri", uri]
                    subprocess.run([*warren, *words], check=True, stdout=subprocess.DEVNULL)
            finally:
                broker.terminate()
                broker.wait(STOP_SECONDS_MAX)


if __name__ == "__main__":
    main()
