from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import quick_hash
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import PutPolicy, SetUserLimits, SetVhostLimits
from warren.server.address import Address
from warren.server.config import GUEST, HTTP_OFF, Config, UserConfig, load
from warren.server.config_error import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test starts in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold() -> None:
    assert load({}, {}) == Config()


def test_flags_go_over_environment_over_file_over_defaults(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", "port = 1\nheartbeat = 1\nchannel_max = 1\n")
    environment = {"WARREN_PORT": "2", "WARREN_HEARTBEAT": "2"}
    config = load({"port": "3"}, environment)
    assert (config.port, config.heartbeat, config.channel_max) == (3, 2, 1)
    assert config.frame_max == Config().frame_max


@pytest.mark.parametrize(
    ("flags", "environment"),
    [({"config": "other.toml"}, {}), ({}, {"WARREN_CONFIG": "other.toml"})],
)
def test_file_may_be_named_by_flag_or_environment(
    elsewhere: Path, flags: dict[str, str], environment: dict[str, str]
) -> None:
    write(elsewhere / "warren.toml", "port = 1")
    write(elsewhere / "other.toml", "port = 2")
    assert load(flags, environment).port == 2


def test_flag_names_the_file_over_the_environment(elsewhere: Path) -> None:
    write(elsewhere / "flag.toml", "port = 1")
    write(elsewhere / "environment.toml", "port = 2")
    assert load({"config": "flag.toml"}, {"WARREN_CONFIG": "environment.toml"}).port == 1


def test_flag_that_was_not_given_changes_nothing() -> None:
    assert load({"port": None, "config": None}, {"WARREN_PORT": "2"}).port == 2


def test_settings_get_the_types_they_have() -> None:
    config = load({"data_dir": "here"}, {"WARREN_MEMORY_WATERMARK": "0.7", "WARREN_BIND": "::1"})
    assert config.data_dir == Path("here")
    assert config.memory_watermark == 0.7
    assert config.bind == "::1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("1", True), ("ON", True), ("false", False), ("0", False), ("no", False)],
)
def test_yes_or_no_may_be_said_in_more_than_one_way(elsewhere: Path, text: str, expected: bool) -> None:
    assert load({}, {"WARREN_EVENTS_STREAM": text}).events_stream is expected
    write(elsewhere / "warren.toml", f"events_stream = {str(expected).lower()}\n")
    assert load({}, {}).events_stream is expected


def test_http_port_may_be_none() -> None:
    assert load({"http_port": "-1"}, {}).http_port == HTTP_OFF


def test_other_variables_of_the_environment_do_not_matter() -> None:
    assert load({}, {"PORT": "1", "WARREN_UNKNOWN": "1", "warren_port": "1"}) == Config()


def test_users_and_vhosts_come_from_the_file(elsewhere: Path) -> None:
    stored = quick_hash("secret")
    write(
        elsewhere / "warren.toml",
        f"""
vhosts = ["/", "prod"]

[[users]]
name = "me"
password = "secret"
tags = ["administrator"]
[users.permissions."/"]
configure = "^me-"
write = ".*"
[users.topic_permissions."/"."amq.topic"]
write = "^{{username}}"

[[users]]
name = "imported"
password_hash = "{stored.value}"
hashing_algorithm = "{stored.algorithm}"
""",
    )
    config = load({}, {})
    assert config.vhosts == ("/", "prod")
    assert config.users == (
        UserConfig(
            name="me",
            password="secret",
            tags=frozenset({"administrator"}),
            permissions={"/": Permissions("^me-", ".*", "")},
            topic_permissions={("/", "amq.topic"): TopicPermissions("^{username}", ".*")},
        ),
        UserConfig(name="imported", password_hash=stored),
    )


def test_policies_and_limits_come_from_the_file(elsewhere: Path) -> None:
    write(
        elsewhere / "warren.toml",
        """
[[policies]]
name = "ttl"
pattern = "^tmp"
apply_to = "queues"
priority = 5
definition = { message-ttl = 60000, dead-letter-exchange = "dead" }

[[policies]]
vhost = "prod"
name = "all"
definition.alternate-exchange = "unrouted"

[[operator_policies]]
name = "cap"
definition = { max-length = 1000 }

[vhost_limits."/"]
max_connections = 100
[vhost_limits.prod]
max_queues = -1

[[users]]
name = "me"
limits = { max_connections = 5, max_channels = 10, max_publish_rate = 100, max_publish_bytes = 1000 }

[[users]]
name = "you"
limits = { max_consume_rate = 100, max_consume_bytes = 1000 }
""",
    )
    config = load({}, {})
    assert config.policies == (
        PutPolicy(
            vhost="/",
            name="ttl",
            pattern="^tmp",
            apply_to="queues",
            priority=5,
            definition={"message-ttl": 60_000, "dead-letter-exchange": "dead"},
        ),
        PutPolicy(vhost="prod", name="all", pattern=".*", definition={"alternate-exchange": "unrouted"}),
    )
    assert config.operator_policies == (
        PutPolicy(
            vhost="/",
            name="cap",
            pattern=".*",
            apply_to="queues",
            definition={"max-length": 1000},
            operator=True,
        ),
    )
    assert config.vhost_limits == (
        SetVhostLimits(vhost="/", max_connections=100),
        SetVhostLimits(vhost="prod", max_queues=-1),
    )
    assert [user.limits for user in config.users] == [
        SetUserLimits(
            user="me", max_connections=5, max_channels=10, max_publish_rate=100, max_publish_bytes=1000
        ),
        SetUserLimits(user="you", max_consume_rate=100, max_consume_bytes=1000),
    ]


def test_guest_is_there_unless_users_are_configured(elsewhere: Path) -> None:
    assert load({}, {}).users == (GUEST,)
    write(elsewhere / "warren.toml", "users = []")
    assert load({}, {}).users == ()


WRONG_FILES = [
    ("not toml", "cannot read"),
    ("colour = 'red'", "unknown setting colour"),
    ("port = 'many'", "port = 'many': expected int"),
    ("port = true", "port = True: expected int"),
    ("port = 65536", "port = 65536: expected 0 to 65535"),
    ("port = -1", "port = -1"),
    ("http_port = -2", "http_port = -2: expected 0 to 65535, or -1 for none"),
    ("events_stream = 'perhaps'", "events_stream = 'perhaps': expected true or false"),
    ("events_sample = -1", "events_sample = -1: expected 1 in how many, up to 2147483648, or 0 for none"),
    ("heartbeat = 65536", "heartbeat"),
    ("channel_max = 0", "channel_max"),
    ("frame_max = 4095", "frame_max = 4095: expected 4096 to 131072"),
    ("frame_max = 131073", "frame_max"),
    ("max_message_bytes = 0", "max_message_bytes"),
    ("memory_watermark = 0", "memory_watermark"),
    ("memory_watermark = nan", "memory_watermark"),
    ("log_level = 'loud'", "log_level = 'loud': expected debug, info, warning, error"),
    ("vhosts = '/'", "vhosts: expected a list"),
    ("users = 'me'", "users: expected a list"),
    ("users = ['me']", "users: each user needs a name"),
    ("[[users]]\npassword = 'x'", "users: each user needs a name"),
    ("[[users]]\nname = 'me'\npassword_hash = '!'", "user 'me'"),
    ("[[users]]\nname = 'me'\npassword_hash = 'AAAA'\nhashing_algorithm = 'rot13'", "unknown password hash"),
    ("[[users]]\nname = 'me'\npermissions.'/' = {write = '['}", "no regular expression"),
    ("[[users]]\nname = 'me'\npermissions.'/' = {read = '.*', exec = '.*'}", "user 'me'"),
    ("[[users]]\nname = 'me'\npermissions = 1", "user 'me'"),
    ("[[users]]\nname = 'me'\nlimits = 1", "limits of user 'me': expected a table"),
    ("[[users]]\nname = 'me'\nlimits.max_queues = 1", "limits of user 'me': unknown setting max_queues"),
    ("[[users]]\nname = 'me'\nlimits.max_channels = 'x'", "max-channels: expected a whole number, not 'x'"),
    ("policies = 1", "policies: expected a list"),
    ("policies = [1]", "policies: each policy needs a name"),
    ("[[policies]]\npattern = 'x'", "policies: each policy needs a name"),
    ("[[policies]]\nname = 'p'", "policies: 'p': definition: expected a table"),
    ("[[policies]]\nname = 'p'\ndefinition = {}", "policies: 'p': no policy provided"),
    ("[[policies]]\nname = 'p'\ndefinition.foo = 1", "'p': foo is not a recognised policy setting"),
    ("[[policies]]\nname = 'p'\ndefinition.max-length = 'x'", "max-length: expected a whole number"),
    ("[[policies]]\nname = 'p'\ncolour = 1", "policies: 'p': unknown setting colour"),
    ("[[policies]]\nname = 'p'\npattern = 1\ndefinition.expires = 1", "'p': pattern: expected a string"),
    ("[[policies]]\nname = 'p'\npattern = '('\ndefinition.expires = 1", "is no regular expression"),
    ("[[policies]]\nname = 'p'\npriority = 'x'\ndefinition.expires = 1", "priority: expected a whole"),
    (
        "[[operator_policies]]\nname = 'p'\ndefinition.ha-mode = 'all'",
        "operator_policies: 'p': ha-mode is not",
    ),
    ("vhost_limits = 1", "vhost_limits: expected a table"),
    ("[vhost_limits]\nmax_queues = 1", "vhost_limits of 'max_queues': expected a table"),
    ("[vhost_limits.'/']\nmax_channels = 1", "vhost_limits of '/': unknown setting max_channels"),
    ("[vhost_limits.'/']\nmax_queues = -2", "vhost_limits of '/': max-queues: -2 is not within 0"),
]


@pytest.mark.parametrize(("text", "error"), WRONG_FILES)
def test_setting_that_makes_no_sense_is_an_error_in_one_line(elsewhere: Path, text: str, error: str) -> None:
    write(elsewhere / "warren.toml", text)
    with pytest.raises(ConfigError) as raised:
        load({}, {})
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_file_that_was_asked_for_must_be_there(elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.toml"):
        load({"config": str(elsewhere / "missing.toml")}, {})


@pytest.mark.parametrize("name", ["WARREN_PORT", "WARREN_MEMORY_WATERMARK"])
def test_environment_that_makes_no_sense_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        load({}, {name: "much"})


@pytest.mark.parametrize(
    "name",
    [
        "WARREN_USERS",
        "WARREN_VHOSTS",
        "WARREN_POLICIES",
        "WARREN_OPERATOR_POLICIES",
        "WARREN_VHOST_LIMITS",
    ],
)
def test_definitions_are_not_for_the_environment(name: str) -> None:
    with pytest.raises(ConfigError, match=r"(list|table) in the configuration file"):
        load({}, {name: "guest"})


def test_fraction_is_no_whole_number(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", "port = 5672.9")
    with pytest.raises(ConfigError, match="expected int"):
        load({}, {})


def test_tags_must_be_a_list(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", "[[users]]\nname = 'me'\ntags = 'administrator'")
    with pytest.raises(ConfigError, match="tags"):
        load({}, {})


def test_unknown_key_of_a_user_is_an_error(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", "[[users]]\nname = 'me'\npasword = 'secret'")
    with pytest.raises(ConfigError, match="pasword"):
        load({}, {})


@pytest.mark.parametrize(
    "text",
    [
        "memory_watermark = 1e400",
        f"memory_budget = {10**400}",
        "memory_watermark = nan",
        f"memory_budget = {2**61}",
        f"consumer_timeout = {2**63}",
        f"disk_free_limit = {2**63}",
        f"receive_buffer_bytes = {2**31}",
        f"open_files_max = {2**40}",
        f"events_sample = {2**40}",
        f"max_transaction_bytes = {2**63}",
        "max_transaction_bytes = 0",
        f"max_transaction_messages = {10**12}",
        "max_transaction_messages = -1",
    ],
)
def test_number_that_no_broker_can_do_with_is_an_error_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "warren.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=text.partition(" ")[0]):
        load({"config": str(file)}, {})


@pytest.mark.parametrize(
    ("text", "expected"), [("none", ()), ("", ()), ("guest", ("guest",)), ("ann, bob", ("ann", "bob"))]
)
def test_names_may_be_text_with_commas(elsewhere: Path, text: str, expected: tuple[str, ...]) -> None:
    assert load({}, {"WARREN_LOOPBACK_USERS": text}).loopback_users == expected
    write(elsewhere / "warren.toml", f'loopback_users = "{text}"\n')
    assert load({}, {}).loopback_users == expected


def test_names_may_be_a_list(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", 'loopback_users = []\nhttp_cors_origins = ["https://a.example"]\n')
    assert load({}, {}).loopback_users == ()
    assert load({}, {}).http_cors_origins == ("https://a.example",)


@pytest.mark.parametrize(
    "text",
    [
        "loopback_users = 1",
        "loopback_users = [1]",
        "auth_backends = []",
        "login_failures_free = -1",
        "login_delay_max = 4000",
        "http_cors_max_age = -1",
        "oauth2 = 1",
    ],
)
def test_wrong_settings_of_security_are_refused(elsewhere: Path, text: str) -> None:
    write(elsewhere / "warren.toml", text)
    with pytest.raises(ConfigError, match=text.partition(" ")[0]):
        load({}, {})


# --- listeners and TLS ---


def test_listeners_go_in_place_of_bind_and_port(elsewhere: Path) -> None:
    write(
        elsewhere / "warren.toml", 'listeners = ["127.0.0.1:1", {address = "[::1]:2", proxy_protocol = true}]'
    )
    assert load({}, {}).amqp_addresses() == (Address("127.0.0.1", 1), Address("::1", 2, proxy_protocol=True))
    from_environment = load({}, {"WARREN_LISTENERS": "127.0.0.1:3,[::1]:4"})
    assert from_environment.amqp_addresses() == (Address("127.0.0.1", 3), Address("::1", 4))


def test_without_listeners_bind_and_ports_say_where() -> None:
    config = Config(bind="::1", port=1, http_port=2, tls_cert="c", tls_port=3, http_tls_port=4)
    assert config.amqp_addresses() == (Address("::1", 1),)
    assert config.http_addresses() == (Address("::1", 2),)
    assert config.amqps_addresses() == (Address("::1", 3),)
    assert config.https_addresses() == (Address("::1", 4),)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert Config().amqps_addresses() == Config().https_addresses() == ()
    assert Config().tls() is None


def test_tls_may_be_a_table_in_the_file(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", '[tls]\ncert = "c.pem"\nport = 1\nversions = ["tlsv1.3"]\n')
    config = load({}, {"WARREN_TLS_KEY": "k.pem"})
    assert (config.tls_cert, config.tls_key, config.tls_port) == ("c.pem", "k.pem", 1)
    assert config.tls_versions == ("tlsv1.3",)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"port": -1}, "port = -1: without TLS, AMQP needs a port"),
        ({"port": -2}, "port = -2: expected 0 to 65535, or -1 for none"),
        ({"tls_port": 65_536}, "tls_port = 65536: expected 0 to 65535, or -1 for none"),
        ({"tls_key": "k"}, "tls_key is set, but tls_cert is not"),
        ({"http_tls_port": 0}, "http_tls_port is set, but tls_cert is not"),
        ({"tls_listeners": ["a:1"]}, "tls_listeners is set, but tls_cert is not"),
        ({"tls_verify": "maybe"}, "tls_verify = 'maybe': expected none, peer, require"),
        ({"tls_cert": "c", "tls_verify": "peer"}, "tls_verify = 'peer' needs tls_ca"),
        ({"tls_crl": "l"}, "tls_crl is set, but tls_cert is not"),
        ({"tls_cert": "c", "tls_crl": "l"}, "tls_crl is set, but tls_verify = 'none'"),
        ({"tls_versions": ("sslv3",)}, "tls_versions = 'sslv3': expected tlsv1.2, tlsv1.3"),
        ({"tls_versions": ()}, "tls_versions = (): expected tlsv1.2, tlsv1.3"),
        ({"tls_login_from": "face"}, "tls_login_from = 'face': expected common_name, "),
        ({"tls_login_san_type": "fax"}, "tls_login_san_type = 'fax': expected dns, ip, email, uri"),
        ({"tls_login_san_index": -1}, "tls_login_san_index = -1: expected 0 to 99"),
    ],
)
def test_listeners_and_tls_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**settings)
    assert str(caught.value).startswith(text)


def test_unknown_setting_of_tls_is_named(elsewhere: Path) -> None:
    write(elsewhere / "warren.toml", "[tls]\ncolour = 1\n")
    with pytest.raises(ConfigError, match="unknown setting tls_colour"):
        load({}, {})
    write(elsewhere / "warren.toml", "tls = 1\n")
    with pytest.raises(ConfigError, match="tls: expected a table"):
        load({}, {})
