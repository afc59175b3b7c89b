"""What the broker itself sends to queues that other nodes lead, and who waits for a term that ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine
from tests.support.rounds import Rounds
from tests.unit.broker.test_replacing import ELSEWHERE, replace
from warren.amqp import methods as m
from warren.amqp.errors import ResourceLocked
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker.commands import DeclareQueue, DeleteQueue
from warren.broker.making import make_queue
from warren.broker.message_job import JobOrder, Kind, MessageJob, State
from warren.broker.post import FULL_MS, Postbox
from warren.broker.queue import Queue
from warren.cluster.letters import LetterSender

PUBLISHED = BasicProperties(delivery_mode=PERSISTENT)
MANY = 50  # queues: a large message reaches them over several turns
TO_DEAD: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class FakePost:
    """Letters for the queue `dead`, which nobody takes until the test says so."""

    def __init__(self, machine: Machine) -> None:
        self.is_full = False
        self.sender = LetterSender(
            lambda _: None, iter(range(1, 100)).__next__, machine.node.turns.later, self._flush
        )
        self.lines = self.sender.lines
        machine.node.post = self

    def _flush(self) -> None:
        """Nobody leads the queue."""

    def box_for(self, vhost: str, queue: str) -> Postbox | None:
        return self.sender.open(1, vhost, queue)

    @property
    def bodies(self) -> list[bytes]:
        """Of all letters that are on their way."""
        return [message.body for line in self.lines.values() for message in line.unsettled]

    def settle(self) -> None:
        """All letters are safe."""
        for line in self.lines.values():
            self.sender._count_out(line.settle(line.gathering))
            line.tell()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()
    machine.platter.close()


@pytest.fixture
def post(machine: Machine) -> FakePost:
    return FakePost(machine)


@pytest.fixture
def client(machine: Machine, post: FakePost) -> FakeClient:
    """Of a broker with a queue whose dead letters go to another node."""
    assert post.bodies == []
    client = machine.connect()
    declare(machine, client, "dead")
    declare(machine, client, "q", TO_DEAD)
    replace(machine, "dead", home=ELSEWHERE)
    return client


def declare(machine: Machine, client: FakeClient, name: str, arguments: Table | None = None) -> Queue:
    client.send(m.QueueDeclare(queue=name, durable=True, arguments=arguments or {}))
    machine.run()
    client.frames()
    return machine.queues[name]


def reject(machine: Machine, client: FakeClient, *bodies: bytes) -> None:
    """Have messages die."""
    for body in bodies:
        client.publish("", "q", body, PUBLISHED)
        machine.run()
        got = client.call(m.BasicGet(queue="q"), m.BasicGetOk)
        client.send(m.BasicReject(delivery_tag=got.delivery_tag, requeue=False))
    machine.run()


def waiting(machine: Machine) -> int:
    return sum(len(round_) for round_ in machine.node.handover.gathered.values())


def test_dead_letter_goes_by_post_and_stays_until_it_is_safe(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    reject(machine, client, b"1", b"2")
    assert post.bodies == [b"1", b"2"]
    assert waiting(machine) == 2
    assert machine.queues["q"].message_count == 0, "nobody gets it again"
    post.settle()
    assert waiting(machine) == 0


def test_what_waits_is_there_again_after_a_restart(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    reject(machine, client, b"1", b"2")
    post.settle()
    reject(machine, client, b"3")
    machine.stop()
    machine.start()
    assert machine.queues["q"].message_count == 1


def retire(machine: Machine, queue: Queue) -> None:
    """The queue's term ends, and nothing stands for the queue yet."""
    node = machine.node
    vhost = node.vhosts["/"]
    wanted = DeclareQueue(vhost="/", name=queue.name, durable=True, home=ELSEWHERE)
    vhost.retire_queue(queue, lambda: vhost.replace_queue(queue, lambda: make_queue(node, wanted)))


def test_letter_for_a_queue_that_is_retired_goes_by_post(machine: Machine, post: FakePost) -> None:
    client = machine.connect()
    dead = declare(machine, client, "dead")
    declare(machine, client, "q", TO_DEAD)
    retire(machine, dead)
    reject(machine, client, b"1")
    assert post.bodies == [b"1"]
    assert machine.queues["dead"] is dead.stands()


def test_nothing_stands_for_a_retired_queue_that_is_deleted(machine: Machine, post: FakePost) -> None:
    client = machine.connect()
    dead = declare(machine, client, "dead")
    declare(machine, client, "q", TO_DEAD)
    retire(machine, dead)
    machine.node.vhosts["/"].remove_queue(dead)
    assert dead.stands() is None
    reject(machine, client, b"1")
    assert (post.bodies, waiting(machine)) == ([], 0), "it has no route"


def test_queue_that_comes_here_gets_its_letters_here(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    reject(machine, client, b"1", b"2")
    replace(machine, "dead")
    machine.run()
    assert post.lines == {}
    assert machine.queues["dead"].message_count == 2
    assert waiting(machine) == 0


def test_letter_for_a_queue_that_is_deleted_is_dropped(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    reject(machine, client, b"1")
    machine.node.execute(DeleteQueue(vhost="/", name="dead"))
    machine.run()
    assert post.lines == {}
    assert waiting(machine) == 0


def test_old_queue_that_leaves_takes_its_dead_with_it(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    reject(machine, client, b"1")
    replace(machine, "q", home=ELSEWHERE)
    replace(machine, "dead")
    machine.run()
    assert machine.queues["dead"].message_count == 0, "the next leader of the old queue sends it"
    assert waiting(machine) == 0
    assert post.bodies == []


def test_dead_letter_is_sent_again_if_the_term_of_its_target_ends(machine: Machine) -> None:
    post = FakePost(machine)
    client = machine.connect()
    dead = declare(machine, client, "dead")
    declare(machine, client, "q", TO_DEAD)
    rounds = Rounds()
    dead.safety = rounds
    reject(machine, client, b"1")
    assert waiting(machine) == 1
    rounds.end_term()
    replace(machine, "dead", home=ELSEWHERE)
    machine.run()
    assert post.bodies == [b"1"]
    post.settle()
    assert waiting(machine) == 0


def test_each_target_is_waited_for_and_only_the_one_that_moved_gets_it_again(machine: Machine) -> None:
    post = FakePost(machine)
    client = machine.connect()
    stays, moves = Rounds(), Rounds()
    for name, rounds in (("stays", stays), ("moves", moves)):
        declare(machine, client, name).safety = rounds
        client.send(m.QueueBind(queue=name, exchange="amq.fanout", arguments={}))
    declare(machine, client, "q", {"x-dead-letter-exchange": "amq.fanout"})
    reject(machine, client, b"1")
    moves.end_term()
    replace(machine, "moves", home=ELSEWHERE)
    machine.run()
    assert post.bodies == [b"1"]
    assert machine.queues["stays"].message_count == 1
    post.settle()
    assert waiting(machine) == 1
    stays.begin_next()
    stays.end(1)
    assert waiting(machine) == 0


def test_delayed_message_goes_by_post(machine: Machine, client: FakeClient, post: FakePost) -> None:
    arguments: Table = {"x-delayed-type": "fanout"}
    client.send(m.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=arguments))
    machine.run()
    client.frames()
    client.send(m.QueueBind(queue="dead", exchange="x", arguments={}))
    delayed = BasicProperties(delivery_mode=PERSISTENT, headers={"x-delay": 1_000})
    client.publish("x", "", b"late", delayed)
    machine.run()
    post.is_full = True
    machine.pass_time(2)
    assert post.bodies == []
    assert machine.queues["amq.delayed.x"].message_count == 1, "it waits where it is"
    post.is_full = False
    machine.pass_time(2 * FULL_MS / 1000)
    assert post.bodies == [b"late"]
    post.settle()
    assert waiting(machine) == 0


def test_messages_expire_later_while_the_post_is_full(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    declare(machine, client, "short", TO_DEAD | {"x-message-ttl": 10})
    post.is_full = True
    client.publish("", "short", b"1", PUBLISHED)
    machine.run()
    machine.pass_time(5)
    assert post.bodies == []
    assert machine.queues["short"].message_count == 1
    post.is_full = False
    machine.pass_time(2 * FULL_MS / 1000)
    assert post.bodies == [b"1"]


@pytest.mark.parametrize("more", [{}, {"x-group-header": "group"}], ids=["plain", "groups"])
def test_get_leaves_expired_messages_where_they_are_while_the_post_is_full(
    machine: Machine, client: FakeClient, post: FakePost, more: Table
) -> None:
    short = declare(machine, client, "short", {**TO_DEAD, "x-message-ttl": 10, **more})
    post.is_full = True
    for body in (b"1", b"2"):
        client.publish("", "short", body, PUBLISHED)
    machine.run()
    machine.pass_time(5)
    client.publish("", "short", b"fresh", PUBLISHED)
    machine.run()
    for _ in range(3):
        client.call(m.BasicGet(queue="short"), m.BasicGetEmpty)
        machine.run()
    assert post.bodies == []
    assert short.message_count == 3
    post.is_full = False
    machine.pass_time(2 * FULL_MS / 1000)
    assert post.bodies == [b"1", b"2", b"fresh"]


def test_client_still_gets_405_for_a_queue_elsewhere(
    machine: Machine, client: FakeClient, post: FakePost
) -> None:
    client.send(m.QueueBind(queue="dead", exchange="amq.fanout", arguments={}))
    client.send(m.QueueBind(queue="q", exchange="amq.fanout", arguments={}))
    machine.run()
    client.frames()
    client.publish("amq.fanout", "", b"1", PUBLISHED)
    client.expect_close(405)
    assert post.bodies == []
    assert machine.queues["q"].message_count == 0


# --- who waits for a term that ends ---


def publish_in_transaction(machine: Machine, client: FakeClient) -> Rounds:
    rounds = Rounds()
    declare(machine, client, "t").safety = rounds
    client.call(m.TxSelect(), m.TxSelectOk)
    client.publish("", "t", b"1", PUBLISHED)
    return rounds


def test_commit_is_answered_when_the_term_ends(machine: Machine) -> None:
    client = machine.connect()
    rounds = publish_in_transaction(machine, client)
    client.send(m.TxCommit())
    machine.run()
    assert client.methods() == []
    rounds.end_term()
    machine.node.end_turn()
    assert "another leader" in client.expect_close(405).reply_text


def test_commit_to_a_queue_that_has_moved_is_refused(machine: Machine) -> None:
    client = machine.connect()
    publish_in_transaction(machine, client)
    replace(machine, "t", home=ELSEWHERE)
    client.send(m.TxCommit())
    machine.run()
    assert "another leader" in client.expect_close(405).reply_text


def test_move_puts_back_what_the_target_may_not_have(machine: Machine) -> None:
    client = machine.connect()
    source, target = declare(machine, client, "from"), declare(machine, client, "to")
    for body in (b"1", b"2"):
        client.publish("", "from", body, PUBLISHED)
    machine.run()
    rounds = Rounds()
    target.safety = rounds
    job = start_job(machine, JobOrder(kind=Kind.MOVE, source=source, target=target))
    machine.run()
    assert source.message_count == 0
    rounds.end_term()
    machine.run()
    assert (job.state, job.done) == (State.STOPPED, 0)
    assert "another node leads" in job.reason
    assert source.message_count == 2
    assert client.call(m.BasicGet(queue="from"), m.BasicGetOk).redelivered is False


def start_job(machine: Machine, order: JobOrder) -> MessageJob:
    job = MessageJob(order, machine.node.store, is_blocked=lambda: False, ended=list[None]().clear)
    job.start()
    return job


def test_message_whose_queue_moved_on_the_way_is_refused_and_not_noted_as_seen(machine: Machine) -> None:
    client = machine.connect()
    client.send(
        m.ExchangeDeclare(exchange="once", type="fanout", arguments={"x-message-deduplication": True})
    )
    for number in range(MANY):
        client.send(m.QueueDeclare(queue=f"q{number}", durable=True, arguments={}))
        client.send(m.QueueBind(queue=f"q{number}", exchange="once", arguments={}))
    machine.run()
    client.frames()
    client.publish("once", "", bytes(1_000_000), BasicProperties(headers={"x-deduplication-header": 1}))
    assert [machine.queues[name].message_count for name in ("q0", f"q{MANY - 1}")] == [1, 0]
    replace(machine, "q0", home=ELSEWHERE)
    client.expect_close(ResourceLocked.code)
    seen = client.vhost.exchanges["once"].seen
    assert seen is not None
    assert seen.count == 0
