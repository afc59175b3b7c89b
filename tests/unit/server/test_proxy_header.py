from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.server.proxy_header import BINARY_BYTES_MAX, LINE_BYTES_MAX, ProxyHeader, ProxyHeaderError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
BEHIND = b"AMQP\0\0\x09\x01"


def binary(command: int, family: int, data: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(data)) + data


def addresses(source: str, destination: str, *ports: int) -> bytes:
    hosts = (ipaddress.ip_address(source).packed, ipaddress.ip_address(destination).packed)
    return b"".join(hosts) + struct.pack(">HH", *ports)


V4 = ("192.0.2.7", 40_000), ("192.0.2.1", 5672)
V6 = ("2001:db8::7", 40_000), ("2001:db8::1", 5672)
UNKNOWN = None, None
REMARKS = b"\x03\0\x04abcd"
HEADERS = {
    "version 1, IPv4": (b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672\r\n", V4),
    "version 1, IPv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 5672\r\n", V6),
    "version 1, unknown": (b"PROXY UNKNOWN\r\n", UNKNOWN),
    "version 1, unknown with words": (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", UNKNOWN),
    "version 2, IPv4": (binary(0x21, 0x11, addresses("192.0.2.7", "192.0.2.1", 40_000, 5672)), V4),
    "version 2, IPv6": (binary(0x21, 0x21, addresses("2001:db8::7", "2001:db8::1", 40_000, 5672)), V6),
    "version 2, remarks": (
        binary(0x21, 0x11, addresses("192.0.2.7", "192.0.2.1", 40_000, 5672) + REMARKS),
        V4,
    ),
    "version 2, the proxy itself": (binary(0x20, 0, b""), UNKNOWN),
    "version 2, Unix sockets": (binary(0x21, 0x31, bytes(216)), UNKNOWN),
}


@pytest.mark.parametrize("name", HEADERS)
@given(cuts=st.lists(st.integers(0, 300), max_size=8))
def test_header_is_read_in_any_pieces_and_what_is_behind_it_is_left(name: str, cuts: list[int]) -> None:
    data, expected = HEADERS[name]
    stream = data + BEHIND
    header, taken = ProxyHeader(), 0
    for stop in [*sorted(cuts), len(stream)]:
        if not header.is_complete and stop > taken:
            taken += header.take(stream[taken:stop])
    assert header.is_complete
    assert taken == len(data)
    assert (header.source, header.destination) == expected


@pytest.mark.parametrize(
    "data",
    [
        BEHIND,
        b"\x16\x03\x01",
        b"PROXY\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 40000\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672 1\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 40000 5672\r\n",
        b"PROXY TCP6 192.0.2.7 192.0.2.1 40000 5672\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 65536\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 -1 5672\r\n",
        b"PROXY TCP4 host 192.0.2.1 1 5672\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 5672\r\n",
        b"PROXY UDP4 192.0.2.7 192.0.2.1 40000 5672\r\n",
        b"PROXY TCP4 " + b"1" * LINE_BYTES_MAX,
        binary(0x11, 0x11, bytes(12)),
        binary(0x22, 0x11, bytes(12)),
        binary(0x21, 0x11, bytes(11)),
        binary(0x21, 0x21, bytes(35)),
        binary(0x21, 0x11, bytes(BINARY_BYTES_MAX)),
    ],
)
def test_bad_header_is_an_error(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        ProxyHeader().take(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_header_an_error_or_the_beginning_of_one(data: bytes) -> None:
    header = ProxyHeader()
    try:
        taken = header.take(data)
    except ProxyHeaderError:
        return
    assert header.is_complete or taken == len(data)
