"""A broker that listens on several addresses, with TLS, and behind a proxy; on either event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import aio_pika
import pytest

import warren
from tests.support.certificates import Certificates
from tests.support.frames import PROTOCOL_HEADER
from tests.support.process import Address
from tests.support.proxy import FROM_PROXY, proxy_to
from tests.unit.server.conftest import WAIT_SECONDS_MAX, Run, tls_port, until, with_tls
from warren.server import app, doorway
from warren.server.listeners import AMQP, AMQPS, HTTP, HTTPS
from warren.session.connection import Connection, connections_of

TURNS_UNTIL_LET_IN = 6  # of the event loop, at most, from a client's call until its connection is made


async def send_and_receive(url: str, **how: Any) -> None:
    async with await aio_pika.connect(url, **how) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        body = bytes(range(256)) * 4_000
        await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
        message = await queue.get()
        assert message.body == body
        await message.ack()


def only_connection(broker: warren.Broker) -> Connection:
    (connection,) = connections_of(broker.node)
    return connection


def test_broker_listens_on_all_its_addresses(run: Run) -> None:
    async def scenario(broker: warren.Broker) -> None:
        ports = broker.listeners.of(AMQP)
        assert [port.host for port in ports] == ["127.0.0.1", "::1"]
        assert broker.addresses() == {"amqp": f"127.0.0.1:{ports[0].port},[::1]:{ports[1].port}"}
        for port in ports:
            await send_and_receive(f"amqp://guest:guest@{port.address}/")

    run(scenario, listeners=["127.0.0.1:0", "[::1]:0"])


def test_clients_come_with_tls_and_without(run: Run, certificates: Certificates) -> None:
    async def scenario(broker: warren.Broker) -> None:
        assert list(broker.addresses()) == ["amqp", "amqps"]
        await send_and_receive(broker.url)
        url = f"amqps://guest:guest@localhost:{tls_port(broker)}/"
        await send_and_receive(url, ssl_context=certificates.context())

    run(scenario, **with_tls(certificates))


def test_broker_may_speak_tls_only(run: Run, certificates: Certificates) -> None:
    async def scenario(broker: warren.Broker) -> None:
        assert broker.url == f"amqps://guest:guest@[::1]:{broker.port}/"
        await send_and_receive(broker.url, ssl_context=certificates.context())

    run(scenario, **with_tls(certificates, port=-1, tls_listeners=["[::1]:0"]))


def test_encryption_is_known_of_the_connection(run: Run, certificates: Certificates) -> None:
    async def scenario(broker: warren.Broker) -> None:
        context = certificates.context(certificates.client("guest"))
        url = f"amqps://guest:guest@127.0.0.1:{tls_port(broker)}/"
        async with await aio_pika.connect(url, ssl_context=context):
            encryption = only_connection(broker).peer.encryption
            assert encryption is not None
            assert encryption.protocol == "tlsv1.3"
            assert encryption.certificate is not None
            assert encryption.certificate.user_name == "guest"

    run(scenario, **with_tls(certificates, tls_ca=str(certificates.ca), tls_verify="peer"))


def test_client_that_speaks_no_tls_is_sent_away_and_the_log_says_why(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: warren.Broker) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", tls_port(broker))
        writer.write(PROTOCOL_HEADER)
        await until(reader.at_eof)
        writer.close()
        await until(lambda: "client not let in" in caplog.text)

    caplog.set_level(logging.INFO, "warren")
    run(scenario, **with_tls(certificates))
    assert not [each for each in caplog.records if each.name == "asyncio" and each.levelno >= logging.ERROR]


def test_silent_clients_are_bounded_in_number(run: Run, certificates: Certificates) -> None:
    """The oldest of them are closed, and others get through."""

    async def scenario(broker: warren.Broker) -> None:
        broker.listeners.reception.waiting_max = 3
        silent = [await asyncio.open_connection("127.0.0.1", tls_port(broker)) for _ in range(5)]
        for reader, _ in silent[:2]:
            assert await reader.read() == b""
        assert broker.descriptors.others() == 3
        await send_and_receive(
            f"amqps://guest:guest@localhost:{tls_port(broker)}/", ssl_context=certificates.context()
        )
        for _, writer in silent:
            writer.close()
        await until(lambda: broker.descriptors.others() == 0)

    run(scenario, **with_tls(certificates))


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "within the handshake"])
def test_silent_clients_are_bounded_in_time(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    async def scenario(broker: warren.Broker) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", tls_port(broker))
        writer.write(begin)
        assert await reader.read() == b""
        writer.close()
        await until(lambda: broker.descriptors.others() == 0)

    monkeypatch.setattr(doorway, "WELCOME_SECONDS_MAX", 0.2)
    run(scenario, **with_tls(certificates))


def test_clients_in_a_handshake_do_not_hold_up_the_end(run: Run, certificates: Certificates) -> None:
    left: list[asyncio.StreamWriter] = []

    async def scenario(broker: warren.Broker) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", tls_port(broker))
        left.append(writer)
        await until(lambda: broker.descriptors.others() == 1)
        await broker.stop()
        writer.close()

    run(scenario, **with_tls(certificates))
    assert left


@pytest.mark.parametrize("protocol", [AMQP, HTTP])
@pytest.mark.parametrize("after", range(TURNS_UNTIL_LET_IN + 1))
def test_client_that_comes_as_the_broker_stops_is_not_left_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch, protocol: str, after: int
) -> None:
    """The broker stops so many turns of the event loop after the client has called."""

    async def scenario(broker: warren.Broker) -> None:
        (port,) = broker.listeners.of(protocol)
        with socket.create_connection(("127.0.0.1", port.port)) as client:
            client.setblocking(False)
            for _ in range(after):
                await asyncio.sleep(0)
            await broker.stop()
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.get_running_loop().sock_recv(client, 1000):
                    pass  # it may be told why
        assert broker.descriptors.connections == broker.descriptors.others() == 0

    monkeypatch.setattr(app, "STOP_SECONDS_MAX", 0)  # this client does not answer
    run(scenario, http_port=0)


def test_nobody_is_let_in_while_the_broker_stops(
    run: Run, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    """It waits for an answer of a client. Another is in its handshake with the HTTP API, which has ended."""

    async def scenario(broker: warren.Broker) -> None:
        _, silent = await asyncio.open_connection("127.0.0.1", broker.port)
        await until(lambda: len(connections_of(broker.node)) == 1)
        (https,) = broker.listeners.of(HTTPS)
        late, writer = await asyncio.open_connection("127.0.0.1", https.port)
        await until(lambda: broker.listeners.reception.count() == 1)
        stopping = asyncio.create_task(broker.stop())
        assert await late.read() == b""
        assert not stopping.done()
        silent.close()
        writer.close()
        await stopping

    monkeypatch.setattr(app, "STOP_SECONDS_MAX", 2 * WAIT_SECONDS_MAX)
    monkeypatch.setattr(doorway, "WELCOME_SECONDS_MAX", 2 * WAIT_SECONDS_MAX)
    run(scenario, **with_tls(certificates, http_tls_port=0))


def test_client_that_does_not_end_tls_is_bounded_in_time(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one of the HTTP API; those of AMQP have a farewell."""

    def ask_and_stay(port: int) -> bytes:
        plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX)
        with certificates.context().wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            while client.recv(1000):
                pass  # until the broker ends TLS
            with socket.socket(fileno=os.dup(client.fileno())) as below:
                below.settimeout(WAIT_SECONDS_MAX)
                return below.recv(1)

    async def scenario(broker: warren.Broker) -> None:
        (port,) = broker.listeners.of(HTTPS)
        assert await asyncio.to_thread(ask_and_stay, port.port) == b""

    monkeypatch.setattr(doorway, "LINGER_SECONDS_MAX", 0.2)
    run(scenario, **with_tls(certificates, http_tls_port=0))


def test_no_more_clients_are_accepted_than_there_are_descriptors(
    run: Run, certificates: Certificates
) -> None:
    async def scenario(broker: warren.Broker) -> None:
        broker.descriptors.counters.append(lambda: 10**9)
        reader, writer = await asyncio.open_connection("127.0.0.1", tls_port(broker))
        assert await reader.read() == b""
        writer.close()

    run(scenario, **with_tls(certificates))


@pytest.mark.parametrize("with_tls_too", [False, True])
async def test_address_that_cannot_be_listened_on_is_named(
    tmp_path: Path, certificates: Certificates, with_tls_too: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = (
            with_tls(certificates, port=0, tls_listeners=[address])
            if with_tls_too
            else {"listeners": [address]}
        )
        with pytest.raises(OSError) as caught:
            await warren.Broker(data_dir=tmp_path, **settings).start()
    protocol = AMQPS if with_tls_too else AMQP
    assert caught.value.strerror == f"cannot listen on {address} for {protocol}: Address already in use"


async def test_host_that_nobody_knows_is_named(tmp_path: Path, certificates: Certificates) -> None:
    for listeners in ("listeners", "tls_listeners"):
        settings = with_tls(certificates, port=0) | {listeners: ["nowhere.invalid:1"]}
        with pytest.raises(OSError, match=r"cannot listen on nowhere\.invalid:1 for amqp.*: "):
            await warren.Broker(data_dir=tmp_path, **settings).start()


# --- behind a proxy ---


async def start_of_connection(
    port: int, data: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return reader, writer, await reader.read(7)
    except ConnectionResetError:  # what we sent was not read
        return reader, writer, b""


def test_proxy_tells_the_clients_address(run: Run) -> None:
    async def scenario(broker: warren.Broker) -> None:
        _, writer, start = await start_of_connection(broker.port, FROM_PROXY + PROTOCOL_HEADER)
        assert start[:1] == b"\x01"
        connection = only_connection(broker)
        assert connection.name == "192.0.2.7:40000 -> 192.0.2.1:5672"
        assert not connection.peer.is_loopback
        writer.close()

    run(scenario, proxy_protocol=True)


def test_proxys_header_may_come_byte_by_byte(run: Run) -> None:
    async def scenario(broker: warren.Broker) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for byte in FROM_PROXY + PROTOCOL_HEADER:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.readexactly(1)) == b"\x01"
        assert only_connection(broker).peer.host == "192.0.2.7"
        writer.close()

    run(scenario, proxy_protocol=True)


def test_proxy_that_speaks_for_itself_has_its_own_address(run: Run) -> None:
    async def scenario(broker: warren.Broker) -> None:
        _, writer, start = await start_of_connection(broker.port, b"PROXY UNKNOWN\r\n" + PROTOCOL_HEADER)
        assert start[:1] == b"\x01"
        assert only_connection(broker).peer.is_loopback
        writer.close()

    run(scenario, listeners=[{"address": "127.0.0.1:0", "proxy_protocol": True}])


@pytest.mark.parametrize("begin", [PROTOCOL_HEADER, b"PROXY TCP4 1 2 3 4\r\n", b"\x16\x03\x01"])
def test_client_without_a_sound_header_is_closed(run: Run, begin: bytes) -> None:
    async def scenario(broker: warren.Broker) -> None:
        _, writer, answer = await start_of_connection(broker.port, begin)
        assert answer == b""
        assert connections_of(broker.node) == []
        writer.close()

    run(scenario, proxy_protocol=True)


def test_header_that_never_ends_is_bounded_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: warren.Broker) -> None:
        _, writer, answer = await start_of_connection(broker.port, FROM_PROXY[:10])
        assert answer == b""
        writer.close()

    monkeypatch.setattr(doorway, "WELCOME_SECONDS_MAX", 0.2)
    run(scenario, proxy_protocol=True)


def test_proxys_header_comes_before_tls(run: Run, certificates: Certificates) -> None:
    """In one packet with the client's part of the handshake, as proxies send it."""

    async def scenario(broker: warren.Broker) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = certificates.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        reader, writer, begin = await start_of_connection(tls_port(broker), FROM_PROXY + outgoing.read())
        incoming.write(begin)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(1 << 16))
        tls.write(PROTOCOL_HEADER)
        writer.write(outgoing.read())
        await until(lambda: bool(connections_of(broker.node)))
        assert only_connection(broker).peer.host == "192.0.2.7"
        assert only_connection(broker).peer.encryption is not None
        writer.close()

    run(scenario, **with_tls(certificates, proxy_protocol=True))


def test_guest_behind_a_proxy_is_not_on_this_machine(run: Run) -> None:
    async def scenario(broker: warren.Broker) -> None:
        async with proxy_to(Address(broker.host, broker.port), FROM_PROXY) as proxy:
            with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
                await aio_pika.connect(f"amqp://guest:guest@{proxy.address.host}:{proxy.address.port}/")

    run(scenario, proxy_protocol=True)


def test_log_names_the_client_behind_the_proxy(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Here one that speaks no TLS."""

    async def scenario(broker: warren.Broker) -> None:
        _, writer, answer = await start_of_connection(tls_port(broker), FROM_PROXY + PROTOCOL_HEADER)
        assert answer == b""
        writer.close()
        await until(lambda: "client not let in" in caplog.text)

    caplog.set_level(logging.INFO, "warren")
    run(scenario, **with_tls(certificates, proxy_protocol=True))
    (record,) = [each for each in caplog.records if each.getMessage() == "client not let in"]
    assert vars(record)["peer"] == "192.0.2.7:40000"
