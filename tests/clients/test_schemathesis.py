"""schemathesis makes requests from the OpenAPI description, sensible and otherwise: no answer is an error of
the server's, and none is one that the description does not have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import pika
import pytest

from tests.support.process import BrokerProcess

MINUTES_MAX = 10
AUTHORIZATION = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)

SETTINGS = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
"""503 says that a health check has failed, as in RabbitMQ."""

pytestmark = pytest.mark.slow


DELETING = ["--include-method", "DELETE"]
NOT_DELETING = ["--exclude-method", "DELETE"]


@pytest.mark.parametrize("chosen", [NOT_DELETING, DELETING], ids=["what-stays", "what-deletes"])
@pytest.mark.timeout(60 * MINUTES_MAX)
def test_every_answer_is_one_that_the_description_has(tmp_path: Path, chosen: list[str]) -> None:
    settings = tmp_path / "warren.toml"
    settings.write_text("login_delay_max = 0")  # requests with wrong logins come in hundreds
    with BrokerProcess(tmp_path / "data", "--config", str(settings)) as broker:
        make_objects(broker)
        (tmp_path / "schemathesis.toml").write_text(SETTINGS)
        found = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{broker.http_url}/api/openapi.json"),
                *("--auth", "guest:guest", "--checks", ",".join(CHECKS), "--no-color", *chosen),
                *("--phases", "examples,coverage,fuzzing", "--max-examples", "5"),
                *("--suppress-health-check", "all", "--request-timeout", "60"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60 * MINUTES_MAX,
            check=False,
        )
        assert found.returncode == 0, found.stdout + found.stderr


def make_objects(broker: BrokerProcess) -> None:
    """The objects that the description has as examples."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.address.url()))
    channel = connection.channel()
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "events", "order.#")
    for number in range(10):
        channel.basic_publish("events", "order.new", b"order %d" % number)
    connection.close()
    put(f"{broker.http_url}/api/users/ops", {"password": "ops", "tags": "monitoring"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    put(f"{broker.http_url}/api/permissions/%2F/ops", everything)
    put(f"{broker.http_url}/api/policies/%2F/short", {"pattern": "^tmp", "definition": {"expires": 60000}})


def put(url: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), AUTHORIZATION, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - of the broker
        assert answer.status == 201
