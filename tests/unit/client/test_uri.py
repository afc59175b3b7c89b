from __future__ import annotations

import pytest

from warren.client.uri import Uri, UriTls, UriTuning, parse_uri, without_password, without_passwords


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
        ("amqps://b?verify=verify_peer&depth=5", Uri("b", 5671, "guest", "guest", "/", UriTls())),
    ],
)
def test_parts_left_out_have_defaults(text: str, uri: Uri) -> None:
    assert parse_uri(text) == uri


@pytest.mark.parametrize(
    ("query", "tuning"),
    [
        ("heartbeat=5", UriTuning(heartbeat_seconds=5)),
        ("heartbeat=0", UriTuning(heartbeat_seconds=0)),
        ("connection_timeout=1500", UriTuning(connect_seconds=1.5)),
        ("channel_max=7&frame_max=8192", UriTuning(channel_max=7, frame_max=8192)),
        ("channel_max=0&frame_max=0", UriTuning()),
        ("auth_mechanism=external&auth_mechanism=plain", UriTuning(mechanisms=("EXTERNAL", "PLAIN"))),
        ("auth_mechanism=amqp_auth_mechanisms:amqplain", UriTuning(mechanisms=("AMQPLAIN",))),
        ("retry_delay=5&fail_if_no_peer_cert=true", UriTuning()),
    ],
)
def test_parameters_of_rabbitmq_tune_the_connection(query: str, tuning: UriTuning) -> None:
    assert parse_uri(f"amqp://broker?{query}").tuning == tuning


@pytest.mark.parametrize(
    ("query", "tls"),
    [
        ("server_name_indication=other", UriTls(server_name="other")),
        ("server_name_indication=disable", UriTls(server_name="")),
        ("password=of%20a%20key", UriTls(key_password="of a key")),
    ],
)
def test_parameters_of_rabbitmq_say_how_to_speak_tls(query: str, tls: UriTls) -> None:
    assert parse_uri(f"amqps://broker?{query}").tls == tls


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("heartbeat=often", "heartbeat should be a whole number from 0 to 65535"),
        ("heartbeat=70000", "heartbeat should be a whole number"),
        ("heartbeat=-1", "heartbeat should be a whole number"),
        ("connection_timeout=0", "connection_timeout should be a whole number from 1"),
        ("channel_max=x", "channel_max should be a whole number"),
        ("frame_max=100", "frame_max=100: expected 4096 or more"),
        ("auth_mechanism=crdemo", "auth_mechanism should be one of plain, amqplain, external"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(query: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_uri(f"amqp://broker?{query}")


def test_password_of_a_key_is_not_shown() -> None:
    assert "canary" not in repr(parse_uri("amqps://b?password=canary&keyfile=k"))


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
