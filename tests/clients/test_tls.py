"""Client libraries over TLS, as their users set them up, against a broker process."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import aiohttp
import aiormq
import kombu
import pika
import pytest
from amqpstorm.connection import Connection as StormConnection
from amqpstorm.message import Message as StormMessage
from pika.credentials import ExternalCredentials

from tests.clients.conftest import LARGE_BODY, WAIT_SECONDS_MAX
from tests.clients.test_perf import perf
from tests.support.certificates import Certificates
from tests.support.log_lines import LogLines
from tests.support.process import Address, BrokerProcess
from warren.cli.main import main
from warren.client.connection import ClientConnection
from warren.client.errors import ClientError
from warren.client.uri import parse_uri

SETTINGS = """
http_tls_port = 0
[tls]
cert = "{server}"
ca = "{ca}"
verify = "peer"
port = 0
[[users]]
name = "guest"
password = "guest"
tags = ["administrator"]
permissions."/" = {{ configure = ".*", write = ".*", read = ".*" }}
[[users]]
name = "worker"
permissions."/" = {{ configure = ".*", write = ".*", read = ".*" }}
"""
# Typed in part only, which mypy would report at each call.
library: Any = kombu


class TlsBroker:
    def __init__(self, process: BrokerProcess, certificates: Certificates) -> None:
        self.process = process
        self.certificates = certificates
        self.address = self.at("amqps")

    def at(self, scheme: str) -> Address:
        host, _, port = self.process.told[scheme].rpartition(":")
        return Address(host, int(port))

    def url(self, query: str = "", user: str = "guest:guest@") -> str:
        return f"amqps://{user}127.0.0.1:{self.address.port}/%2F{query}"

    def pika_parameters(self, certificate: Path | None = None, **more: Any) -> pika.ConnectionParameters:
        options = pika.SSLOptions(self.certificates.context(certificate), "localhost")
        return pika.ConnectionParameters("127.0.0.1", self.address.port, ssl_options=options, **more)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    directory = tmp_path_factory.mktemp("tls")
    certificates = Certificates(directory)
    settings = directory / "warren.toml"
    settings.write_text(SETTINGS.format(server=certificates.server, ca=certificates.ca))
    with BrokerProcess(directory / "data", "--config", str(settings)) as process:
        yield TlsBroker(process, certificates)
        process.check_log()


def test_pika(broker: TlsBroker, name: str) -> None:
    with pika.BlockingConnection(broker.pika_parameters()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, exclusive=True)
        channel.basic_publish("", name, LARGE_BODY)
        _, _, body = channel.basic_get(name, auto_ack=True)
    assert body == LARGE_BODY


def test_pika_with_a_certificate_in_place_of_a_password(broker: TlsBroker, name: str) -> None:
    certificate = broker.certificates.client("worker")
    parameters = broker.pika_parameters(certificate, credentials=ExternalCredentials())
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.basic_publish("", name, b"hello", pika.BasicProperties(user_id="worker"))
        _, _, body = channel.basic_get(name, auto_ack=True)
    assert body == b"hello"


def test_pika_with_the_certificate_of_an_unknown_user_is_refused(broker: TlsBroker) -> None:
    certificate = broker.certificates.client("nobody")
    parameters = broker.pika_parameters(certificate, credentials=ExternalCredentials())
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_pika_without_a_certificate_cannot_use_external(broker: TlsBroker) -> None:
    parameters = broker.pika_parameters(credentials=ExternalCredentials())
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)


async def test_aio_pika(broker: TlsBroker) -> None:
    url = broker.url(f"?cafile={broker.certificates.ca}")
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(LARGE_BODY), queue.name)
        message = await queue.get()
        assert message.body == LARGE_BODY
        await message.ack()


async def test_aiormq_with_a_certificate_in_place_of_a_password(broker: TlsBroker) -> None:
    certificate = broker.certificates.client("worker")
    query = f"?auth=external&cafile={broker.certificates.ca}&certfile={certificate}&keyfile={certificate}"
    connection = await aiormq.connect(broker.url(query, user=""))
    channel = await connection.channel()
    declared = await channel.queue_declare(exclusive=True)
    await channel.basic_publish(b"hello", routing_key=declared.queue or "")
    message = await channel.basic_get(declared.queue or "", no_ack=True)
    assert message.body == b"hello"
    await connection.close()


def test_kombu(broker: TlsBroker, name: str) -> None:
    how = {"ca_certs": str(broker.certificates.ca), "cert_reqs": ssl.CERT_REQUIRED}
    with library.Connection(
        hostname="127.0.0.1", port=broker.address.port, ssl=how, connect_timeout=WAIT_SECONDS_MAX
    ) as connection:
        queue = connection.SimpleQueue(name)
        queue.put({"large": LARGE_BODY.hex()})
        message = queue.get(timeout=WAIT_SECONDS_MAX)
        assert message.payload == {"large": LARGE_BODY.hex()}
        message.ack()
        queue.close()
        connection.channel().queue_delete(name)


def test_amqpstorm(broker: TlsBroker, name: str) -> None:
    options = {"context": broker.certificates.context(), "server_hostname": "localhost"}
    with (
        StormConnection(
            "127.0.0.1", "guest", "guest", port=broker.address.port, ssl=True, ssl_options=options
        ) as connection,
        connection.channel() as channel,
    ):
        channel.confirm_deliveries()
        channel.queue.declare(name, exclusive=True)
        assert channel.basic.publish(LARGE_BODY, name)
        message = channel.basic.get(name, no_ack=True)
        assert isinstance(message, StormMessage)
        assert message._body == LARGE_BODY  # `body` would be text where it can be


def test_our_own_client(broker: TlsBroker) -> None:
    query = f"?cacertfile={broker.certificates.ca}"
    with ClientConnection(parse_uri(broker.url(query)), product="test") as connection:
        assert connection.frame_max > 0
    with ClientConnection(parse_uri(broker.url("?verify=verify_none")), product="test") as connection:
        assert connection.frame_max > 0
    with pytest.raises(ClientError, match=r"cannot trust 127\.0\.0\.1"):
        ClientConnection(parse_uri(broker.url()), product="test")


@pytest.mark.parametrize("words", ["--size 16 --confirm 100", "--size 200000 --prefetch 10", "--consumers 0"])
def test_load_tool(broker: TlsBroker, words: str) -> None:
    """Whole records and parts of them go both ways as fast as they can, and nothing gets stuck."""
    command = f"throughput --seconds 0.5 --warmup 0 --json {words}"
    done = perf(broker.address, command, uri=broker.url("?verify=verify_none"))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["published"] > 0


async def test_http_api(broker: TlsBroker) -> None:
    url = f"https://127.0.0.1:{broker.at('https').port}/api/whoami"
    login = {"Authorization": aiohttp.encode_basic_auth("guest", "guest")}
    async with aiohttp.ClientSession() as session:
        async with session.get(url, headers=login, ssl=broker.certificates.context()) as answer:
            assert (answer.status, (await answer.json())["name"]) == (200, "guest")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(url, headers=login)


class Load:
    """A connection that publishes with confirms and gets what it published, until it is told to stop."""

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self.parameters = parameters
        self.stopping = threading.Event()
        self.rounds = 0
        self.changed = threading.Condition()  # of `rounds` and `error`
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            with pika.BlockingConnection(self.parameters) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                queue = channel.queue_declare("", exclusive=True).method.queue
                while not self.stopping.is_set():
                    channel.basic_publish("", queue, bytes(20_000))
                    assert channel.basic_get(queue, auto_ack=True)[2] == bytes(20_000)
                    with self.changed:
                        self.rounds += 1
                        self.changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def goes_on(self) -> bool:
        """Whether it goes a few rounds more from now on."""
        with self.changed:
            reached = self.rounds + 5
            self.changed.wait_for(lambda: self.rounds >= reached or self.error, WAIT_SECONDS_MAX)
            return self.rounds >= reached


def test_certificates_are_exchanged_under_load_and_no_connection_ends(broker: TlsBroker) -> None:
    loads = [Load(broker.pika_parameters()) for _ in range(3)]
    try:
        with LogLines(broker.process.http_url) as log:
            seen = {shown(broker)}
            for _ in range(5):
                assert all(load.goes_on() for load in loads)
                broker.certificates.issue("server", "localhost", "127.0.0.1", "::1")
                broker.process.process.send_signal(signal.SIGHUP)
                log.wait_for("settings reloaded")
                seen.add(shown(broker))
        assert all(load.goes_on() for load in loads)
    finally:
        for load in loads:
            load.stopping.set()
        for load in loads:
            load.thread.join(WAIT_SECONDS_MAX)
    assert [load.error for load in loads] == [None, None, None]
    assert len(seen) == 6


def shown(broker: TlsBroker) -> str:
    return ssl.get_server_certificate(
        ("127.0.0.1", broker.address.port), ca_certs=str(broker.certificates.ca)
    )


def test_wrong_certificate_stops_the_start_with_its_name(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", "--tls-cert", str(tmp_path / "absent.pem"))
    process.launch()
    assert process.process.wait(WAIT_SECONDS_MAX) == 2
    process.kill()
    expected = f"warren serve: tls_cert = '{tmp_path / 'absent.pem'}': No such file or directory\n"
    assert process.log().endswith(expected)


async def test_many_handshakes_at_once(broker: TlsBroker) -> None:
    context = broker.certificates.context()

    async def connect() -> None:
        async with await aio_pika.connect(broker.url(), ssl_context=context, timeout=60):
            return

    await asyncio.gather(*(connect() for _ in range(60)))


def test_import_over_tls(
    broker: TlsBroker, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`https` stands for AMQP with TLS as well, and the certificates for both."""
    with pika.BlockingConnection(broker.pika_parameters()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        channel.basic_publish("", name, LARGE_BODY)
    source = f"https://guest:guest@localhost:{broker.at('https').port}"
    with BrokerProcess(tmp_path / "data") as here:
        to = here.http_url.replace("://", "://guest:guest@")
        words = ["--url", source, "--cacert", str(broker.certificates.ca), "--to", to, "--json", "-p", "/"]
        assert main(["import", "rabbitmq", *words]) == 0
        rows = {row["queue"]: row["moved"] for row in json.loads(capsys.readouterr().out)}
        assert rows[name] == 1
        with pika.BlockingConnection(pika.URLParameters(here.address.url())) as connection:
            assert connection.channel().basic_get(name, auto_ack=True)[2] == LARGE_BODY
