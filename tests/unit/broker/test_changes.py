"""Changes: the checks that belong to a command hold whoever asks, and one change may bring about others."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeBroker
from warren.amqp import methods as m
from warren.amqp.errors import (
    AccessRefused,
    AmqpError,
    CommandInvalid,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from warren.amqp.table import Table
from warren.broker import commands as c
from warren.broker.changes import Applied
from warren.broker.client import ClientId
from warren.broker.commands import COMMAND_WORK, Command
from warren.broker.events import QueueCreated
from warren.broker.turns import WORK_A_TURN_MAX

DELAYED: Table = {"x-delayed-type": "direct"}


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.node.execute(c.DeclareQueue(vhost="/", name="q", durable=True, arguments={"x-max-length": 5}))
    broker.node.execute(c.DeclareQueue(vhost="/", name="own", owner=ClientId(7)))
    broker.node.execute(c.DeclareExchange(vhost="/", name="e", type="direct"))
    broker.node.execute(c.SetVhostLimits(vhost="/", max_queues=3))
    return broker


def queue(name: str = "new", **properties: object) -> c.DeclareQueue:
    return c.DeclareQueue(vhost="/", name=name, **properties)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (queue("q", durable=True), PreconditionFailed),
        (queue("q", arguments={"x-max-length": 5}), PreconditionFailed),
        (queue("own"), ResourceLocked),
        (queue("own", owner=ClientId(8)), ResourceLocked),
        (queue("amq.mine"), AccessRefused),
        (queue("bell\a"), PreconditionFailed),
        (queue(arguments={"x-max-length": -1}), PreconditionFailed),
        (queue(arguments={"x-dead-letter-exchange": 5}), PreconditionFailed),
        (queue(arguments={"x-queue-type": "quorum"}), PreconditionFailed),
        (queue(durable=True, auto_delete=True, arguments={"x-queue-type": "quorum"}), PreconditionFailed),
        (c.DeclareQueue(vhost="nowhere", name="q"), NotFound),
        (c.DeclareExchange(vhost="/", name="e", type="topic"), PreconditionFailed),
        (c.DeclareExchange(vhost="/", name="amq.mine", type="topic"), AccessRefused),
        (c.DeclareExchange(vhost="/", name="", type="topic"), AccessRefused),
        (c.DeclareExchange(vhost="/", name="x", type="nonesuch"), CommandInvalid),
        (
            c.DeclareExchange(vhost="/", name="x", type="topic", arguments={"alternate-exchange": 1}),
            PreconditionFailed,
        ),
        (c.DeleteExchange(vhost="/", name="amq.topic"), AccessRefused),
        (c.Bind(vhost="/", source="nonesuch", destination="q", to_queue=True), NotFound),
        (c.SetPermissions(user="nobody", vhost="/", permissions=None), NotFound),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_change_that_makes_no_sense_is_refused_whoever_asks(
    broker: FakeBroker, command: Command, error: type[AmqpError]
) -> None:
    with pytest.raises(error):
        broker.node.execute(command)
    assert sorted(broker.vhost.queues) == ["own", "q"]


def test_queue_limit_holds_for_every_way_in(broker: FakeBroker) -> None:
    broker.node.execute(queue("third"))
    with pytest.raises(PreconditionFailed, match="queue limit"):
        broker.node.execute(queue("fourth"))
    broker.node.execute(queue("third"))  # is there already


def test_broker_may_choose_a_name_that_is_reserved(broker: FakeBroker) -> None:
    assert broker.node.execute(queue("amq.gen-1", by_broker=True)).made.name == "amq.gen-1"


def test_applied_says_what_is_there_and_whether_it_is_new(broker: FakeBroker) -> None:
    first, second = broker.node.execute(queue()), broker.node.execute(queue())
    assert (first.changed, second.changed) == (True, False)
    assert first.made is second.made is broker.vhost.queues["new"]
    broker.connect().open().publish("", "new", b"m")
    assert broker.node.execute(c.DeleteQueue(vhost="/", name="new")) == Applied(changed=True, made=1)
    assert broker.node.execute(c.DeleteQueue(vhost="/", name="new")) == Applied(changed=False, made=0)


@pytest.mark.parametrize(
    ("condition", "reason"), [({"if_unused": True}, "in use"), ({"if_empty": True}, "not empty")]
)
def test_queue_in_use_is_kept_if_so_asked(
    broker: FakeBroker, condition: dict[str, bool], reason: str
) -> None:
    client = broker.connect().open()
    client.publish("", "q", b"m")
    client.publish("", "q", b"n")
    client.send(m.BasicQos(prefetch_count=1))
    client.consume("q")
    with pytest.raises(PreconditionFailed, match=reason):
        broker.node.execute(c.DeleteQueue(vhost="/", name="q", **condition))
    assert "q" in broker.vhost.queues


def test_error_is_given_to_who_asked_for_the_change(broker: FakeBroker) -> None:
    answers: list[Applied] = []
    broker.node.change(queue("amq.mine"), answers.append)
    (applied,) = answers
    assert isinstance(applied.error, AccessRefused)
    assert not applied.changed
    assert broker.world.errors == []


def test_change_during_another_comes_behind_it(broker: FakeBroker) -> None:
    done: list[str] = []

    def ask_for_more(event: QueueCreated) -> None:
        if event.queue == "new":
            broker.node.change(queue("more"), lambda _applied: done.append("more"))

    broker.node.events.subscribe(QueueCreated, ask_for_more)
    broker.node.execute(c.SetVhostLimits(vhost="/"))
    broker.node.change(queue("new"), lambda _applied: done.append("new"))
    assert done == ["new", "more"]


def test_subscriber_may_make_a_change_at_once(broker: FakeBroker) -> None:
    broker.node.execute(c.SetVhostLimits(vhost="/"))
    made: list[Applied] = []
    broker.node.events.subscribe(
        QueueCreated,
        lambda event: made.append(broker.node.execute(queue("more"))) if event.queue == "new" else None,
    )
    broker.node.execute(queue("new"))
    assert made[0].made is broker.vhost.queues["more"]


def test_long_chain_of_exchanges_that_delete_themselves_ends(broker: FakeBroker) -> None:
    """Each exchange is deleted with its last binding, which leads to the next: too deep for recursion."""
    count = 2_000
    for number in range(count):
        command = c.DeclareExchange(vhost="/", name=f"x{number}", type="direct", auto_delete=True)
        broker.node.execute(command)
        if number:
            source, destination = f"x{number}", f"x{number - 1}"
            broker.node.execute(c.Bind(vhost="/", source=source, destination=destination, to_queue=False))
    broker.node.execute(c.DeleteExchange(vhost="/", name="x0"))
    broker.world.run()
    assert not [name for name in broker.vhost.exchanges if name.startswith("x")]
    assert broker.world.errors == []


def test_queues_of_an_exchange_come_and_go_with_it(broker: FakeBroker) -> None:
    delayed = c.DeclareExchange(vhost="/", name="late", type="x-delayed-message", arguments=DELAYED)
    assert [command.name for command in broker.node.execute(delayed).follow_up] == ["amq.delayed.late"]  # type: ignore[union-attr]
    assert list(broker.vhost.internal_queues) == ["amq.delayed.late"]
    broker.node.execute(c.DeleteExchange(vhost="/", name="late"))
    assert broker.vhost.internal_queues == {}


def test_vhost_with_very_many_queues_goes_over_several_turns() -> None:
    broker = FakeBroker()
    broker.node.execute(c.AddVhost(name="v"))
    count = 2 * WORK_A_TURN_MAX // COMMAND_WORK
    for number in range(count):
        broker.node.execute(c.DeclareQueue(vhost="v", name=str(number)))
    broker.world.run()
    vhost = broker.node.vhosts["v"]
    broker.node.turns.budget.left = WORK_A_TURN_MAX
    broker.node.execute(c.DeleteVhost(name="v"))
    assert "v" not in broker.node.vhosts
    assert 0 < len(vhost.queues) < count
    broker.node.execute(c.AddVhost(name="v"))
    broker.node.execute(c.DeclareQueue(vhost="v", name="0"))
    broker.world.run()
    assert (len(vhost.queues), list(broker.node.vhosts["v"].queues)) == (0, ["0"])
    assert broker.world.errors == []


def test_queue_whose_arguments_make_no_sense_any_more_is_restored_without_them() -> None:
    """It was declared before there was a rule of that name, when any value would do."""
    broker = FakeBroker()
    arguments: Table = {"x-message-ttl": "soon", "x-max-length": 5}
    broker.node.restore([c.DeclareQueue(vhost="/", name="old", durable=True, arguments=arguments)])
    rules = broker.vhost.queues["old"].rules
    assert (rules.message_ttl, rules.max_length) == (None, 5)
    (error,) = broker.world.errors
    assert "invalid arg 'x-message-ttl' for queue 'old'" in str(error)
