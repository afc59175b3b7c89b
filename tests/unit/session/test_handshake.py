from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fake_client import FakeClient, make_peer
from tests.support.fakes import EVERYTHING, FakeBroker, FakeWorld, add_user, make_node
from tests.unit.amqp.test_methods import a_method
from warren.amqp import methods as m
from warren.amqp.table import Table
from warren.broker import commands
from warren.broker.access import Permissions, User
from warren.broker.login import Credentials, Identity, Outcome, Refusal
from warren.broker.node import Limits
from warren.session.liveness import HANDSHAKE_SECONDS_MAX
from warren.session.state import State


def fresh() -> FakeClient:
    return FakeClient(make_node(FakeWorld()))


def until_start_ok(client: FakeClient) -> None:
    client.greet()


def until_tune_ok(client: FakeClient) -> None:
    until_start_ok(client)
    client.authenticate()
    client.world.run_threads()


def until_open(client: FakeClient) -> None:
    until_tune_ok(client)
    client.tune()


def until_opened(client: FakeClient) -> None:
    until_open(client)
    client.send(m.ConnectionOpen(), 0)


WAYS: dict[State, tuple[Callable[[FakeClient], None], type[m.Method]]] = {
    State.AWAITING_START_OK: (until_start_ok, m.ConnectionStartOk),
    State.AWAITING_TUNE_OK: (until_tune_ok, m.ConnectionTuneOk),
    State.AWAITING_OPEN: (until_open, m.ConnectionOpen),
    State.OPEN: (until_opened, m.ConnectionUpdateSecret),
}
NOT_DUE = [
    (state, kind)
    for state, (_, due) in WAYS.items()
    for kind in m.METHODS.values()
    if kind not in {due, m.ConnectionClose}
]


def closes(client: FakeClient) -> list[m.ConnectionClose]:
    return [method for method in client.methods(0) if isinstance(method, m.ConnectionClose)]


@pytest.mark.parametrize("state", WAYS)
def test_each_step_leads_to_its_state(state: State) -> None:
    client = fresh()
    WAYS[state][0](client)
    assert client.connection.state is state
    assert closes(client) == []


@pytest.mark.parametrize(
    ("state", "kind"), NOT_DUE, ids=[f"{state.name}-{kind.name}" for state, kind in NOT_DUE]
)
def test_method_that_is_not_due_closes_with_503(state: State, kind: type[m.Method]) -> None:
    client = fresh()
    WAYS[state][0](client)
    client.send(a_method(kind), 0)
    (close,) = closes(client)
    assert (close.reply_code, (close.class_id, close.method_id)) == (503, kind.id)
    assert client.connection.state is State.CLOSING


@pytest.mark.parametrize("state", WAYS)
def test_client_may_close_in_every_state(state: State) -> None:
    client = fresh()
    WAYS[state][0](client)
    client.send(m.ConnectionClose(reply_code=200), 0)
    assert client.methods(0)[-1] == m.ConnectionCloseOk()
    assert client.link.is_closed
    assert client.connection.state is State.CLOSED


@pytest.mark.parametrize("state", [State.AWAITING_START_OK, State.AWAITING_TUNE_OK, State.AWAITING_OPEN])
def test_channel_method_before_open_closes_with_504(state: State) -> None:
    client = fresh()
    WAYS[state][0](client)
    client.send(m.ChannelOpen(), 1)
    assert [close.reply_code for close in closes(client)] == [504]


@pytest.mark.parametrize("greeting", [b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x01\x00\x00", b"GET / HT"])
def test_other_protocol_is_told_ours_and_closed(greeting: bytes) -> None:
    client = fresh()
    client.connection.feed(greeting)
    assert bytes(client.link.sent) == b"AMQP\0\0\x09\x01"
    assert client.link.is_closed
    assert not client.node.clients


def test_start_offers_mechanisms_and_capabilities() -> None:
    client = fresh()
    client.greet()
    (start,) = client.methods(0)
    assert isinstance(start, m.ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms.split() == [b"PLAIN", b"AMQPLAIN"]
    capabilities = start.server_properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["publisher_confirms"] is True
    assert start.server_properties["cluster_name"] == "test"


def test_frames_that_come_while_a_thread_verifies_the_password_wait_for_it() -> None:
    client = fresh()
    client.greet()
    client.authenticate()
    assert client.connection.state is State.AUTHENTICATING
    assert not client.link.is_reading
    client.tune()
    client.send(m.ConnectionOpen(), 0)
    assert [type(method) for method in client.methods(0)] == [m.ConnectionStart]
    client.world.run_threads()
    assert [type(method) for method in client.methods(0)] == [m.ConnectionTune, m.ConnectionOpenOk]
    assert client.link.is_reading


def test_connection_lost_while_a_thread_verifies_its_password_stays_lost() -> None:
    client = fresh()
    client.greet()
    client.authenticate()
    client.connection.lost()
    client.world.run_threads()
    assert client.connection.state is State.CLOSED


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("guest", ""), ("nobody", "guest")])
def test_wrong_password_closes_with_403_for_who_understands_it(user: str, password: str) -> None:
    client = fresh()
    client.greet()
    client.authenticate(user, password)
    client.world.run_threads()
    (close,) = closes(client)
    assert close.reply_code == 403
    assert close.reply_text.startswith("ACCESS_REFUSED - Login was refused")


def test_wrong_password_closes_the_socket_after_a_delay_for_who_does_not() -> None:
    client = fresh()
    client.greet()
    client.authenticate("guest", "wrong", capabilities=())
    client.world.run_threads()
    assert closes(client) == []
    assert not client.link.is_closed
    client.world.advance(1.0)
    assert client.link.is_closed


def test_user_without_a_password_cannot_log_in() -> None:
    client = fresh()
    client.node.execute(commands.PutUser(name="bare", password=None))
    client.greet()
    client.authenticate("bare", "")
    client.world.run_threads()
    assert [close.reply_code for close in closes(client)] == [403]


def test_loopback_user_cannot_log_in_from_elsewhere() -> None:
    node = make_node(FakeWorld())
    add_user(node, "me")
    for user, codes in (("guest", [403]), ("me", [])):
        client = FakeClient(node, is_loopback=False)
        client.greet()
        client.authenticate(user)
        client.world.run_threads()
        assert [close.reply_code for close in closes(client)] == codes


def test_unknown_mechanism_closes_with_530() -> None:
    client = fresh()
    client.greet()
    client.send(m.ConnectionStartOk(client_properties={}, mechanism="KERBEROS", response=b""), 0)
    assert [close.reply_code for close in closes(client)] == [530]


@pytest.mark.parametrize("response", [b"", b"guest", b"\0guest", b"\0a\0b\0c"])
def test_malformed_plain_response_closes_with_502(response: bytes) -> None:
    client = fresh()
    client.greet()
    client.send(m.ConnectionStartOk(client_properties={}, response=response), 0)
    assert [close.reply_code for close in closes(client)] == [502]


LIMITS = Limits(channel_max=100, frame_max=8192, heartbeat_seconds=10)


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "accepted"),
    [
        (100, 8192, True),
        (1, 4096, True),
        (101, 8192, False),
        (100, 8193, False),
        (100, 4095, False),
        (0, 8192, False),  # no limit is more than was offered
        (100, 0, False),
    ],
)
def test_client_may_tune_down_to_the_least_and_not_up(
    channel_max: int, frame_max: int, accepted: bool
) -> None:
    client = FakeClient(make_node(FakeWorld(), LIMITS))
    until_tune_ok(client)
    tune = client.methods(0)[-1]
    assert tune == m.ConnectionTune(channel_max=100, frame_max=8192, heartbeat=10)
    client.send(m.ConnectionTuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=0), 0)
    assert [close.reply_code for close in closes(client)] == ([] if accepted else [530])
    if accepted:
        assert client.connection.frame_max == client.connection.output.frame_max == frame_max
        assert client.connection.channel_max == channel_max


def test_unknown_vhost_and_one_without_permission_close_with_530() -> None:
    for vhost in ("unknown", "forbidden"):
        client = fresh()
        client.node.execute(commands.AddVhost(name="forbidden"))
        until_open(client)
        client.send(m.ConnectionOpen(virtual_host=vhost), 0)
        assert [close.reply_code for close in closes(client)] == [530]


def test_vhost_with_permission_opens() -> None:
    client = fresh()
    client.node.execute(commands.AddVhost(name="other"))
    client.node.execute(commands.SetPermissions(user="guest", vhost="other", permissions=Permissions()))
    until_open(client)
    client.send(m.ConnectionOpen(virtual_host="other"), 0)
    assert client.methods(0)[-1] == m.ConnectionOpenOk()
    assert client.connection.vhost is client.node.vhosts["other"]


def test_update_secret_is_answered() -> None:
    client = fresh()
    until_opened(client)
    client.frames()
    client.send(m.ConnectionUpdateSecret(new_secret=b"token", reason="expired"), 0)
    assert client.methods(0) == [m.ConnectionUpdateSecretOk()]


class Tokens:
    """An authenticator for tokens such as `me:60:/`: who, for how many seconds, and the vhost if any."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world

    def __call__(self, credentials: Credentials, done: Callable[[Outcome], None]) -> None:
        name, seconds, vhost = (credentials.secret or b"").decode().split(":")
        user = User(name, None, permissions={vhost: EVERYTHING} if vhost else {})
        if int(seconds):
            done(Identity(user, self.world.time_ms() + 1000 * int(seconds)))
        else:
            done(Refusal("expired"))


def with_token(token: str) -> FakeClient:
    client = fresh()
    client.node.logins.checks = (Tokens(client.world),)
    client.greet()
    client.authenticate("anything", token)
    client.tune()
    client.send(m.ConnectionOpen(), 0)
    client.send(m.ChannelOpen())
    client.frames()
    return client


def test_token_says_who_the_user_is() -> None:
    client = with_token("me:60:/")
    assert (client.connection.user_name, client.connection.access.user.name) == ("me", "me")
    assert client.connection.access.user.connections == 1


def test_connection_ends_when_its_token_expires() -> None:
    client = with_token("me:90:/")
    client.world.advance(89)
    assert closes(client) == []
    client.world.advance(1)
    (close,) = closes(client)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - credential expired")


def test_clock_that_is_set_forward_ends_the_token_within_a_minute() -> None:
    client = with_token("me:7200:/")
    client.world.ahead_ms = 7_200_000
    client.world.advance(60)
    assert [close.reply_code for close in closes(client)] == [320]


def test_new_token_takes_the_place_of_the_old_one() -> None:
    client = with_token("me:90:/")
    old = client.connection.access.user
    client.send(m.ConnectionUpdateSecret(new_secret=b"me:200:/", reason="soon"), 0)
    assert client.methods(0) == [m.ConnectionUpdateSecretOk()]
    new = client.connection.access.user
    assert [(user.connections, user.channels) for user in (old, new)] == [(0, 0), (1, 1)]
    client.world.advance(199)
    assert closes(client) == []
    client.world.advance(2)
    assert [close.reply_code for close in closes(client)] == [320]


def test_new_token_takes_permissions_away() -> None:
    client = with_token("me:90:/")
    client.declare("before")
    client.publish("", "before", b"1")
    client.send(m.ConnectionUpdateSecret(new_secret=b"me:90:other", reason="soon"), 0)
    client.frames()
    client.publish("", "before", b"2")
    (close,) = client.methods(1)
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 403


@pytest.mark.parametrize("token", [b"me:0:/", b"another:90:/"])
def test_new_token_that_is_refused_closes_with_530(token: bytes) -> None:
    client = with_token("me:90:/")
    client.send(m.ConnectionUpdateSecret(new_secret=token, reason="soon"), 0)
    (close,) = closes(client)
    assert (close.reply_code, (close.class_id, close.method_id)) == (530, m.ConnectionUpdateSecret.id)


def test_connection_that_ends_leaves_no_timer_for_its_token() -> None:
    client = with_token("me:90:/")
    client.hang_up()
    assert client.world.later == []


def test_login_that_has_to_wait_holds_up_nobody_else_and_ends_with_the_handshake() -> None:
    broker = FakeBroker(Limits(login_failures_free=1))
    for _ in range(6):
        broker.pass_time(20)
        client = FakeClient(broker.node, peer=make_peer("127.0.0.2"))
        client.greet()
        client.authenticate("guest", "wrong")
        broker.world.run()
    waiting = FakeClient(broker.node, peer=make_peer("127.0.0.2"))
    waiting.greet()
    waiting.authenticate("guest")
    broker.connect("elsewhere")
    add_user(broker.node, "another")
    FakeClient(broker.node, peer=make_peer("127.0.0.3")).open("another")
    assert waiting.connection.state is State.AUTHENTICATING
    assert not waiting.link.is_reading
    broker.pass_time(HANDSHAKE_SECONDS_MAX + 1)
    assert waiting.link.is_closed


def test_login_that_had_to_wait_goes_on() -> None:
    broker = FakeBroker(Limits(login_failures_free=1))
    client = broker.connect()
    client.greet()
    client.authenticate("guest", "wrong")
    broker.world.run()
    again = broker.connect()
    again.greet()
    again.authenticate("guest")
    assert not again.link.is_reading
    broker.advance(1)
    assert again.connection.state is State.AWAITING_TUNE_OK
    assert again.link.is_reading


@pytest.mark.parametrize(
    "properties",
    [{}, {"capabilities": True}, {"capabilities": {"basic.nack": 1}}, {"capabilities": {"other": True}}],
)
def test_capability_counts_only_if_it_is_true(properties: Table) -> None:
    client = fresh()
    client.connection.client_properties = properties
    assert not client.connection.has_capability("basic.nack")
