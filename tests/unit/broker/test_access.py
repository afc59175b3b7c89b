from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, add_user, make_node
from warren.amqp import methods as m
from warren.amqp.errors import AccessRefused
from warren.amqp.properties import BasicProperties
from warren.broker import access as access_module
from warren.broker import commands
from warren.broker.access import Access, Permission, Permissions, TopicPermissions, User
from warren.broker.exchange.exchange import Exchange
from warren.broker.exchange.topic import Topic


def access(permissions: Permissions) -> Access:
    return Access(User("me", None, permissions={"/": permissions}), "/")


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("", "anything", False),
        ("", "", False),
        ("^$", "anything", False),
        ("^amq\\.default$", "", True),
        ("^mine-", "mine-1", True),
        ("^mine-", "not-mine-1", False),
        ("mine", "not-mine-1", True),
        ("^(a|b)$", "b", True),
        ("^(a|b)$", "ab", False),
    ],
)
def test_name_is_allowed_if_the_pattern_is_found_in_it(pattern: str, name: str, allowed: bool) -> None:
    assert access(Permissions(write=pattern)).allows(Permission.WRITE, name) is allowed


@pytest.mark.parametrize("permission", Permission)
def test_each_permission_has_its_own_pattern(permission: Permission) -> None:
    granted = access(Permissions(**{permission.value: ".*"}))
    assert [p for p in Permission if granted.allows(p, "q")] == [permission]


def test_permissions_of_another_vhost_do_not_count() -> None:
    user = User("me", None, permissions={"other": Permissions(".*", ".*", ".*")})
    assert not Access(user, "/").allows(Permission.READ, "q")


def test_refusal_says_what_was_refused_to_whom() -> None:
    with pytest.raises(AccessRefused) as refused:
        access(Permissions()).check(Permission.CONFIGURE, "queue", "q")
    assert refused.value.reply_text == (
        "ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'me'"
    )


def test_decision_is_remembered_until_told_to_forget() -> None:
    granted = access(Permissions(write=".*"))
    assert granted.allows(Permission.WRITE, "q")
    granted.user.permissions["/"] = Permissions()
    assert granted.allows(Permission.WRITE, "q")
    granted.forget()
    assert not granted.allows(Permission.WRITE, "q")


def test_decisions_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "DECISIONS_CACHED_MAX", 10)
    granted = access(Permissions(write="^q"))
    assert all(granted.allows(Permission.WRITE, f"q{number}") for number in range(100))
    assert len(granted.decisions) <= 10


TOPICS = Exchange("amq.topic", "topic", Topic({}))


def topic_access(topics: TopicPermissions, user: str = "me", vhost: str = "/") -> Access:
    return Access(User(user, None, topic_permissions={(vhost, "amq.topic"): topics}), vhost)


@pytest.mark.parametrize(
    ("pattern", "user", "vhost", "key", "allowed"),
    [
        ("^a\\.", "me", "/", "a.b", True),
        ("^a\\.", "me", "/", "b.a.", False),
        ("^{username}\\.", "me", "/", "me.x", True),
        ("^{username}\\.", "me", "/", "you.x", False),
        ("^{vhost}-{username}$", "me", "prod", "prod-me", True),
        ("^{vhost}-{username}$", "me", "prod", "prod-you", False),
        ("^{username}$", "a.c", "/", "a.c", True),
        ("^{username}$", "a.c", "/", "abc", False),  # a name is no pattern
        ("^{username}$", "{vhost}", "/", "/", False),
        ("", "me", "/", "a", False),
    ],
)
def test_topic_is_allowed_if_the_pattern_is_found_in_the_key(
    pattern: str, user: str, vhost: str, key: str, allowed: bool
) -> None:
    for permission in (Permission.WRITE, Permission.READ):
        topics = TopicPermissions(**{permission.value: pattern})
        granted = topic_access(topics, user, vhost)
        if allowed:
            granted.check_topic(permission, TOPICS, key)
        else:
            with pytest.raises(AccessRefused, match=f"{permission.value} access to topic"):
                granted.check_topic(permission, TOPICS, key)


def test_exchange_without_topic_permissions_lets_every_key_through() -> None:
    another = Exchange("another", "topic", Topic({}))
    topic_access(TopicPermissions(write="^$")).check_topic(Permission.WRITE, another, "a.b")


def test_changed_permissions_hold_for_the_next_message_of_an_open_connection() -> None:
    node = make_node(FakeWorld())
    add_user(node, "me")
    client = FakeClient(node).open("me")
    client.publish("amq.fanout", "k", b"1")
    assert client.methods() == []
    refused = Permissions(".*", "^other$", ".*")
    node.execute(commands.SetPermissions(user="me", vhost="/", permissions=refused))
    client.publish("amq.fanout", "k", b"2")
    client.expect_close(403)


def test_changed_topic_permissions_hold_for_the_next_message_of_an_open_connection() -> None:
    node = make_node(FakeWorld())
    client = FakeClient(node).open()
    client.publish("amq.topic", "a.b", b"1")
    assert client.methods() == []
    topics = TopicPermissions(write="^{username}\\.")
    node.execute(
        commands.SetTopicPermissions(user="guest", vhost="/", exchange="amq.topic", permissions=topics)
    )
    client.publish("amq.topic", "guest.b", b"2")
    assert client.methods() == []
    client.publish("amq.topic", "a.b", b"3")
    client.expect_close(403)


def test_changed_permissions_leave_other_users_alone() -> None:
    node = make_node(FakeWorld())
    add_user(node, "other")
    client = FakeClient(node).open()
    client.publish("amq.fanout", "k", b"1")
    node.execute(commands.SetPermissions(user="other", vhost="/", permissions=Permissions()))
    client.publish("amq.fanout", "k", b"2")
    assert client.methods() == []


def with_keys(header: str, *keys: str, delay_ms: int = 0) -> BasicProperties:
    return BasicProperties(headers={header: list(keys), "x-delay": delay_ms})


def restricted_client(exchange: str = "amq.topic", pattern: str = "^mine\\.") -> FakeClient:
    """The exchange is bound to the queue q with all keys; guest may send only with some of them."""
    client = FakeClient(make_node(FakeWorld())).open()
    if exchange != "amq.topic":
        client.declare_exchange(exchange, "x-delayed-message", arguments={"x-delayed-type": "topic"})
    client.declare("q")
    client.bind("q", exchange, "#")
    topics = TopicPermissions(write=pattern)
    client.node.execute(
        commands.SetTopicPermissions(user="guest", vhost="/", exchange=exchange, permissions=topics)
    )
    return client


@pytest.mark.parametrize("exchange", ["amq.topic", "delayed"])
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_topic_permissions_hold_for_the_keys_in_cc_and_bcc(header: str, exchange: str) -> None:
    client = restricted_client(exchange)
    queue = client.vhost.queues["q"]
    for _ in range(2):
        client.publish(exchange, "mine.a", b"m", with_keys(header, "mine.b", "mine.c"))
    assert (client.methods(), queue.message_count) == ([], 2)
    client.publish(exchange, "mine.a", b"m", with_keys(header, "mine.b", "yours.c"))
    assert client.expect_close(403).reply_text == (
        f"ACCESS_REFUSED - write access to topic 'yours.c' in exchange '{exchange}' in vhost '/' "
        "refused for user 'guest'"
    )
    assert queue.message_count == 2


@pytest.mark.parametrize("key", ["yours.a", "mine.a"])
def test_message_that_is_to_wait_needs_the_permission_for_its_keys_at_once(key: str) -> None:
    client = restricted_client("delayed")
    client.publish("delayed", key, b"m", with_keys("BCC", "yours.b", delay_ms=60_000))
    client.expect_close(403)
    assert client.vhost.internal_queues["amq.delayed.delayed"].message_count == 0


def test_key_in_bcc_of_a_transaction_is_refused_when_it_is_published() -> None:
    client = restricted_client()
    client.call(m.TxSelect(), m.TxSelectOk)
    client.publish("amq.topic", "mine.a", b"m", with_keys("BCC", "yours.b"))
    client.expect_close(403)


def test_permission_for_a_key_in_cc_that_is_taken_away_holds_for_the_next_message() -> None:
    client = restricted_client(pattern=".*")
    client.publish("amq.topic", "mine.a", b"m", with_keys("CC", "yours.b"))
    assert client.methods() == []
    topics = TopicPermissions(write="^mine")
    client.node.execute(
        commands.SetTopicPermissions(user="guest", vhost="/", exchange="amq.topic", permissions=topics)
    )
    client.publish("amq.topic", "mine.a", b"m", with_keys("CC", "yours.b"))
    client.expect_close(403)


def test_same_keys_in_cc_are_checked_again_for_another_exchange() -> None:
    client = restricted_client()
    client.publish("amq.fanout", "mine.a", b"m", with_keys("CC", "yours.b"))
    assert client.methods() == []
    client.publish("amq.topic", "mine.a", b"m", with_keys("CC", "yours.b"))
    client.expect_close(403)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_queue_of_an_exchange_is_not_reached_by_cc_or_bcc(header: str) -> None:
    client = restricted_client("delayed")
    client.publish("", "q", b"m", with_keys(header, "amq.delayed.delayed"))
    assert client.expect_close(403).reply_text == (
        "ACCESS_REFUSED - a queue that belongs to an exchange gets its messages from that alone"
    )
    assert client.vhost.queues["q"].message_count == 0


def test_binding_without_queue_and_key_needs_the_permission_for_the_key_that_it_gets() -> None:
    client = restricted_client()
    topics = TopicPermissions(read="^$")
    client.node.execute(
        commands.SetTopicPermissions(user="guest", vhost="/", exchange="amq.topic", permissions=topics)
    )
    client.send(m.QueueBind(queue="", exchange="amq.topic", routing_key="", arguments={}))
    client.expect_close(403)
