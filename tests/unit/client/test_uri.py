from __future__ import annotations

import pytest

from warren.client.uri import Uri, UriTls, parse_uri, without_password, without_passwords


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


@pytest.mark.parametrize(
    "text",
    [
        "amqp://me:canary\u2100@broker",  # of which `urlsplit` would say all
        "amqp://me:canary@[broker",
        "amqp://me:canary/x@broker",
        "amqp://me:canary#@broker",
        "http://me:canary@broker",
    ],
)
def test_errors_do_not_repeat_the_password(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_uri(text)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://me:secret@broker:1/v", "amqp://me:***@broker:1/v"),
        ("amqps://:secret@broker?verify=verify_none", "amqps://:***@broker?verify=verify_none"),
        ("amqp://me:@broker", "amqp://me:***@broker"),
        ("amqp://me:sec@ret@broker/a@b", "amqp://me:***@broker/a@b"),
        ("amqp://me:sec/ret@broker", "amqp://me:***@broker"),
        ("amqp://me:sec#r?t@broker", "amqp://me:***@broker"),
        ("amqps://broker?keyfile=k&password=secret&x=1", "amqps://broker?keyfile=k&password=***&x=1"),
        ("http://me:secret@broker", "http://me:***@broker"),
        ("amqp://", "amqp://"),
        ("amqp://me@broker:5672/v", "amqp://me@broker:5672/v"),
        ("amqp://broker:5672/v?heartbeat=5", "amqp://broker:5672/v?heartbeat=5"),
        ("a:secret@b", "a:secret@b"),
    ],
)
def test_passwords_of_uris_are_hidden(text: str, shown: str) -> None:
    assert without_password(text) == shown


def test_passwords_are_hidden_wherever_they_are_in_json() -> None:
    uri, hidden = "amqp://me:secret@b", "amqp://me:***@b"
    value = {"uri": [uri, 5, None], "more": {"x": uri, "y": True}}
    assert without_passwords(value) == {"uri": [hidden, 5, None], "more": {"x": hidden, "y": True}}
    assert value["uri"] == [uri, 5, None]
