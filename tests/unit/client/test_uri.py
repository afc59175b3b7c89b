from __future__ import annotations

import pytest

from warren.client.uri import Uri, UriTls, parse_uri


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("amqp://", Uri("127.0.0.1", 5672, "guest", "guest", "/")),
        ("amqp://broker", Uri("broker", 5672, "guest", "guest", "/")),
        ("amqp://broker:1234/", Uri("broker", 1234, "guest", "guest", "/")),
        ("amqp://u:p@broker/v", Uri("broker", 5672, "u", "p", "v")),
        ("amqp://u%40x:p%2F@broker/%2F", Uri("broker", 5672, "u@x", "p/", "/")),
        ("amqp://u:@broker", Uri("broker", 5672, "u", "", "/")),
        ("amqp://[::1]:99/a%2Fb", Uri("::1", 99, "guest", "guest", "a/b")),
        ("amqps://broker", Uri("broker", 5671, "guest", "guest", "/", UriTls())),
        (
            "amqps://u:p@b:1/v?cacertfile=a.pem&certfile=b.pem&keyfile=c.pem&verify=verify_none",
            Uri("b", 1, "u", "p", "v", UriTls("a.pem", "b.pem", "c.pem", verify=False)),
        ),
        ("amqps://b?verify=verify_peer&heartbeat=5", Uri("b", 5671, "guest", "guest", "/", UriTls())),
    ],
)
def test_parts_left_out_have_defaults(text: str, uri: Uri) -> None:
    assert parse_uri(text) == uri


@pytest.mark.parametrize(
    "text",
    ["", "broker:5672", "http://broker", "amqps://broker?verify=maybe", "amqp://b:port/", "amqp://b/a/b"],
)
def test_what_is_no_amqp_uri_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_uri(text)


@pytest.mark.parametrize(
    ("host", "address"), [("b", "b:1"), ("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1")]
)
def test_address_can_be_told_from_its_port(host: str, address: str) -> None:
    assert Uri(host, 1, "", "", "/").address == address
