"""Changes of definitions in a cluster, one schedule after the other."""

from __future__ import annotations

import errno

import pytest

from tests.cluster.definitions.model_etcd import PREFIX, Asked, Member, ModelEtcd, settle, topology
from warren.amqp.errors import ResourceLocked
from warren.amqp.table import Table
from warren.broker.access import Permissions
from warren.broker.client import ClientId
from warren.broker.commands import (
    AddVhost,
    Bind,
    ClearPermissions,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    PutPolicy,
    PutUser,
    SetPermissions,
    Unbind,
)
from warren.broker.store import MessageLog, Store
from warren.cluster.definitions.definition import LAST
from warren.cluster.definitions.model_changes import shard_home
from warren.cluster.definitions.proposals import ANSWER_SECONDS_MAX, OVERTAKEN_MAX, RETRY_SECONDS

ALL = Permissions(".*", ".*", ".*")


def queue(name: str = "q", **more: object) -> DeclareQueue:
    return DeclareQueue(vhost="/", name=name, **{"durable": True, **more})  # type: ignore[arg-type]


def bind(source: str = "e", destination: str = "q", key: str = "") -> Bind:
    return Bind(vhost="/", source=source, destination=destination, to_queue=True, routing_key=key)


def exchange(name: str = "e", **more: object) -> DeclareExchange:
    return DeclareExchange(vhost="/", name=name, **{"type": "direct", **more})  # type: ignore[arg-type]


def code(asked: Asked) -> int:
    """The reply code, 0 for a success, -1 while there is no answer."""
    if asked.applied is None:
        return -1
    return 0 if asked.applied.error is None else asked.applied.error.code


@pytest.fixture
def etcd() -> ModelEtcd:
    return ModelEtcd()


def cluster(etcd: ModelEtcd, *names: str) -> list[Member]:
    """Nodes that have the vhost /."""
    members = [Member(etcd, name) for name in names]
    settle(*members)
    members[0].ask(AddVhost(name="/"))
    settle(*members)
    return members


def test_what_is_declared_on_one_node_is_there_on_all(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    asked = [a.ask(queue()), a.ask(exchange())]
    assert [code(each) for each in asked] == [-1, -1], "nothing is answered before etcd has agreed"
    settle(a, b)
    asked.append(a.ask(bind()))
    settle(a, b)
    assert [code(each) for each in asked] == [0, 0, 0]
    assert topology(a.node) == topology(b.node)
    assert a.node.vhosts["/"].queues["q"].is_here
    assert not b.node.vhosts["/"].queues["q"].is_here


def test_an_answer_waits_until_the_node_itself_has_the_change(etcd: ModelEtcd) -> None:
    a, _ = cluster(etcd, "a", "b")
    asked = a.ask(queue())
    a.run_request()
    assert code(asked) == -1
    a.watch()
    assert code(asked) == 0
    assert asked.applied is not None
    assert asked.applied.made is a.node.vhosts["/"].queues["q"]


def test_a_watch_may_be_faster_than_the_answer(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    asked = a.ask(queue())
    request = a.requests.pop()
    assert request.transaction is not None
    answer = etcd.txn(request.transaction)
    a.watch()
    assert code(asked) == -1
    request.done(answer)
    assert code(asked) == 0


def test_a_race_of_equal_declares_is_won_by_both(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    asked = [a.ask(queue()), b.ask(queue())]
    settle(a, b)
    assert [code(each) for each in asked] == [0, 0]
    assert etcd.kvs[f"{PREFIX}queue/%2F/q"].version == 1


def test_a_race_of_unequal_declares_is_lost_with_406(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    arguments: Table = {"x-max-length": 5}
    asked = [a.ask(queue()), b.ask(queue(arguments=arguments))]
    settle(a, b)
    assert [code(each) for each in asked] == [0, 406]


def test_declare_and_delete_at_once_end_in_one_of_both_orders(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue())
    settle(a, b)
    deleted, declared = a.ask(DeleteQueue(vhost="/", name="q")), b.ask(queue())
    settle(a, b)
    assert code(deleted) == 0
    assert code(declared) == 0
    assert topology(a.node) == topology(b.node)


def test_a_binding_to_a_queue_that_was_deleted_meanwhile_is_404(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue())
    a.ask(exchange())
    settle(a, b)
    deleted = a.ask(DeleteQueue(vhost="/", name="q"))
    a.run_request()
    bound = b.ask(bind())
    settle(a, b)
    assert (code(deleted), code(bound)) == (0, 404)
    assert not b.node.vhosts["/"].exchanges["e"].bindings


def test_a_binding_dies_with_its_queue_and_stays_dead_when_the_queue_is_made_anew(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    for command in (queue(), exchange(), bind(), DeleteQueue(vhost="/", name="q"), queue()):
        a.ask(command)
        settle(a, b)
    fresh = Member(etcd, "c")
    settle(a, b, fresh)
    for member in (a, b, fresh):
        assert not member.node.vhosts["/"].exchanges["e"].bindings
    assert not [key for key in etcd.kvs if "/binding/" in key], "what is dead was swept up"


def test_a_binding_is_made_in_place_of_a_dead_one(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    for command in (queue(), exchange(), bind()):
        a.ask(command)
        settle(a, b)
    b.metadata.proposals.to_sweep.clear()
    deleted = a.ask(DeleteQueue(vhost="/", name="q"))
    a.run_request()
    a.watch()
    a.metadata.proposals.to_sweep.clear()  # as if the node had died before it swept
    a.requests.clear()
    a.metadata.proposals.flight = None
    assert code(deleted) == 0
    asked = [a.ask(queue())]
    settle(a, b)
    asked.append(a.ask(bind()))
    settle(a, b)
    assert [code(each) for each in asked] == [0, 0]
    assert len(b.node.vhosts["/"].exchanges["e"].bindings) == 1


def test_a_404_comes_after_catching_up(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue())
    a.ask(exchange())
    a.run_request()
    a.run_request()
    bound = b.ask(bind())  # b has heard of neither
    settle(a, b)
    assert code(bound) == 0
    lacking = b.ask(bind(destination="none"))
    settle(a, b)
    assert code(lacking) == 404


def test_an_unknown_outcome_is_read_and_not_repeated_if_it_was_made(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    asked = a.ask(queue())
    a.run_request("answer lost")
    settle(a)
    assert code(asked) == 0
    assert etcd.kvs[f"{PREFIX}queue/%2F/q"].version == 1


@pytest.mark.parametrize("fate", ["lost", "refused", "late"])
def test_a_change_that_was_not_made_is_sent_again(etcd: ModelEtcd, fate: str) -> None:
    [a] = cluster(etcd, "a")
    asked = a.ask(queue())
    a.run_request(fate)
    settle(a)
    revision = etcd.revision
    a.run_late()
    settle(a)
    assert code(asked) == 0
    assert etcd.revision == revision, "a late transaction finds its key made already"


def test_a_lost_event_is_found_by_the_next_one(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue("q1"))
    settle(a)
    a.ask(queue("q2"))
    settle(a)
    b.watch("lost")
    b.watch()
    assert b.wants_load
    b.load()
    assert topology(a.node) == topology(b.node)


def test_a_part_of_a_revision_that_was_lost_is_found(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue("q1"))
    a.ask(queue("q2"))
    settle(a)
    b.watch("in part")
    assert b.wants_load
    assert "q2" not in b.node.vhosts["/"].queues, "a revision is never taken in part"


def test_a_revision_that_is_told_again_changes_nothing(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue())
    settle(a, b)
    known = b.node.vhosts["/"].queues["q"]
    assert b.metadata.told(etcd.history[-1])
    assert b.node.vhosts["/"].queues["q"] is known


def test_a_lost_event_that_none_follows_is_found_by_reading(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue())
    settle(a)
    b.watch("lost")
    b.metadata.look_at(etcd.kvs[PREFIX + LAST])
    assert b.wants_load


def test_without_etcd_a_declare_ends_with_405_that_says_why(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    asked = a.ask(queue())
    a.run_request("refused")
    a.pass_time(ANSWER_SECONDS_MAX)
    assert code(asked) == 405
    assert asked.applied is not None
    assert asked.applied.error is not None
    assert "refused" in asked.applied.error.text
    settle(a)
    assert "q" not in a.node.vhosts["/"].queues, "what was answered is not sent any more"


def test_without_etcd_it_is_not_asked_all_the_time(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    a.ask(queue("q0"))
    a.run_request("refused")
    for number in range(1, 50):
        a.ask(queue(f"q{number}"))
    assert a.requests == []
    a.pass_time(RETRY_SECONDS)
    assert len(a.requests) == 1
    settle(a)
    assert len(a.node.vhosts["/"].queues) == 50


def run_without_space(member: Member, seconds: float) -> int:
    """For a while etcd answers reads, and says of each transaction that it has no space. Return how many
    transactions it was asked for.
    """
    sent = 0
    for _ in range(round(seconds / RETRY_SECONDS)):
        while member.requests:
            assert sent < 1_000, "it is asked over and over"
            sent += member.requests[0].transaction is not None
            is_read = member.requests[0].transaction is None
            member.run_request("done" if is_read else "no space")
        member.pass_time(RETRY_SECONDS)
    return sent


def test_an_etcd_without_space_is_not_asked_all_the_time_and_the_error_says_it(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    asked = a.ask(queue())
    tries_max = round(ANSWER_SECONDS_MAX / RETRY_SECONDS)
    assert 2 <= run_without_space(a, ANSWER_SECONDS_MAX) <= tries_max
    assert code(asked) == 405
    assert asked.applied is not None
    assert asked.applied.error is not None
    assert "no space" in asked.applied.error.text
    assert "may still be made" in asked.applied.error.text
    later = a.ask(queue())
    settle(a)
    assert code(later) == 0, "when etcd has space again"


def test_what_the_model_asks_for_waits_until_etcd_has_space(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    for command in (queue(), exchange(), bind()):
        a.ask(command)
        settle(a)
    a.node.vhosts["/"].ask_for(DeleteQueue(vhost="/", name="q"))
    a.world.run()
    assert run_without_space(a, 10 * ANSWER_SECONDS_MAX) > OVERTAKEN_MAX
    a.pass_time(RETRY_SECONDS)
    a.run_request()  # etcd has space
    a.watch()
    assert "q" not in a.node.vhosts["/"].queues
    run_without_space(a, RETRY_SECONDS)  # it has none for what has died with the queue
    settle(a)
    assert not [key for key in etcd.kvs if "binding" in key]


def test_without_etcd_nothing_is_said_not_to_be_there(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    told: list[object] = []
    a.metadata.catch_up(told.append)
    a.world.run()
    a.run_request("lost")
    assert told == []
    a.pass_time(ANSWER_SECONDS_MAX)
    [error] = told
    assert isinstance(error, ResourceLocked)
    a.metadata.catch_up(told.append)
    settle(a)
    assert told == [error, None]


def test_without_etcd_a_redeclare_of_what_is_there_goes_on(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    a.ask(queue())
    settle(a)
    asked = a.ask(queue())
    a.run_request("lost")
    assert code(asked) == 0, "as far as anybody can know"


def test_commands_of_one_turn_go_in_one_transaction(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    revision = etcd.revision
    answers: list[object] = []
    for number in range(100):
        a.node.change(queue(f"q{number}"), answers.append)
    a.world.run()
    settle(a)
    assert len(answers) == 100
    assert etcd.revision == revision + 1
    records = a.metadata.copy.records
    numbers = {record.number for record in records.values() if record.key.kind == "queue"}
    assert len(numbers) == 100, "each queue has its own number"


class BrokenShard:
    """This node leads a shard, and cannot open the logs of a queue."""

    def home_of(self, _shard: int, _number: int) -> str:
        return ""

    def store_of(self, _shard: int, _number: int) -> Store:
        return BrokenStore()


class BrokenStore(Store):
    def open_log(self, vhost: str, queue: str, part: str = "") -> tuple[MessageLog, int]:
        raise OSError(errno.EIO, "Input/output error")


def test_a_change_that_fails_on_a_node_keeps_no_other_from_it(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.metadata.model.shards = BrokenShard()
    a.metadata.proposals.planner.shard_of = lambda command: 0 if command.name == "broken" else None
    revision = etcd.revision
    asked = [a.ask(queue(name)) for name in ("first", "broken", "other")]
    settle(a, b)
    assert etcd.revision == revision + 2, "the last two are one change"
    assert [code(each) for each in asked] == [0, 541, 0]
    assert "other" in a.node.vhosts["/"].queues
    assert [type(error) for error in a.world.errors] == [OSError]


def test_commands_that_depend_on_each_other_go_one_after_the_other(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    answers: list[object] = []
    for command in (queue(), DeleteQueue(vhost="/", name="q"), queue()):
        a.node.change(command, answers.append)
    a.world.run()
    settle(a)
    assert len(answers) == 3


def test_a_delayed_exchange_has_its_queue_on_all_nodes(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    delayed: Command = exchange("late", type="x-delayed-message", arguments={"x-delayed-type": "direct"})
    revision = etcd.revision
    asked = a.ask(delayed)
    settle(a, b)
    assert code(asked) == 0
    assert etcd.revision == revision + 1, "exchange and queue are one change"
    assert set(b.node.vhosts["/"].internal_queues) == {"amq.delayed.late"}
    b.ask(DeleteExchange(vhost="/", name="late"))
    settle(a, b)
    for member in (a, b):
        assert not member.node.vhosts["/"].internal_queues
    assert not [key for key in etcd.kvs if "late" in key]


def test_permissions_end_with_their_vhost(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    early = SetPermissions(user="u", vhost="v", permissions=ALL)
    for command in (PutUser(name="u", password=None), early, AddVhost(name="v")):
        a.ask(command)
        settle(a, b)
    a.ask(SetPermissions(user="u", vhost="/", permissions=ALL))
    settle(a, b)
    a.ask(DeleteVhost(name="v"))
    a.ask(DeleteVhost(name="/"))
    settle(a, b)
    fresh = Member(etcd, "c")
    settle(a, b, fresh)
    for member in (a, b, fresh):
        assert not member.node.users["u"].permissions
    asked = a.ask(ClearPermissions(user="u", vhost="/"))
    settle(a, b)
    assert code(asked) == 0


def test_an_exclusive_queue_belongs_to_its_node_and_ends_with_its_run(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.node.clients[ClientId(7)] = object()  # type: ignore[assignment]
    mine = queue("mine", owner=ClientId(7), durable=False)
    asked = a.ask(mine)
    settle(a, b)
    assert code(asked) == 0
    assert a.node.vhosts["/"].queues["mine"].owner == ClientId(7)
    refused = b.ask(queue("mine", owner=ClientId(7), durable=False))
    settle(a, b)
    assert code(refused) == 405
    again = Member(etcd, "a", run="2")
    again.load()
    again.metadata.clear_up()
    settle(again, b)
    assert "mine" not in b.node.vhosts["/"].queues
    assert not [key for key in etcd.kvs if "mine" in key]


def test_an_exclusive_queue_can_be_declared_anew_when_its_connection_has_ended(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    a.node.clients[ClientId(7)] = object()  # type: ignore[assignment]
    a.ask(queue("mine", owner=ClientId(7), durable=False))
    settle(a)
    del a.node.clients[ClientId(7)]
    a.node.clients[ClientId(8)] = object()  # type: ignore[assignment]
    a.node.vhosts["/"].ask_for(DeleteQueue(vhost="/", name="mine"))
    asked = a.ask(queue("mine", owner=ClientId(8), durable=False))
    a.requests.reverse()  # whatever comes first at etcd
    settle(a)
    assert code(asked) == 0
    assert a.node.vhosts["/"].queues["mine"].owner == ClientId(8)


def test_an_exclusive_queue_whose_connection_ended_meanwhile_goes_at_once(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue("mine", owner=ClientId(7), durable=False))
    settle(a, b)
    assert "mine" not in b.node.vhosts["/"].queues
    assert not [key for key in etcd.kvs if "mine" in key]


def test_an_auto_delete_exchange_goes_with_its_last_binding(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    for command in (exchange("auto", auto_delete=True), queue(), bind("auto")):
        a.ask(command)
        settle(a, b)
    asked = b.ask(Unbind(vhost="/", source="auto", destination="q", to_queue=True))
    settle(a, b)
    assert code(asked) == 0
    for member in (a, b):
        assert "auto" not in member.node.vhosts["/"].exchanges


def test_what_the_model_asks_for_waits_for_etcd_without_end(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    a.ask(queue())
    settle(a)
    a.node.vhosts["/"].ask_for(DeleteQueue(vhost="/", name="q"))
    a.world.run()
    for _ in range(20):
        a.run_request("refused")
        a.pass_time(ANSWER_SECONDS_MAX)
    settle(a)
    assert "q" not in a.node.vhosts["/"].queues


def test_a_queue_made_anew_is_not_deleted_for_the_one_before(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    a.ask(queue())
    settle(a, b)
    a.node.vhosts["/"].ask_for(DeleteQueue(vhost="/", name="q"))
    a.world.run()
    a.run_request("refused")
    b.ask(DeleteQueue(vhost="/", name="q"))
    settle(b)
    b.ask(queue())
    settle(b)
    settle(a, b)
    assert "q" in a.node.vhosts["/"].queues


def test_a_change_that_others_get_ahead_of_all_the_time_ends(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")

    def policy(number: int) -> PutPolicy:
        return PutPolicy(vhost="/", name="p", pattern=f"{number}", definition={"max-length": 1})

    asked = a.ask(policy(0))
    for number in range(1, OVERTAKEN_MAX + 5):
        b.ask(policy(number))
        settle(b)
        a.run_request()
        while a.seen < len(etcd.history):
            a.watch()
    assert code(asked) == 405


def test_a_node_compares_its_disk_with_etcd_when_it_starts(etcd: ModelEtcd) -> None:
    a, b = cluster(etcd, "a", "b")
    for command in (
        queue("old"),
        queue("kept"),
        exchange(),
        bind(destination="old"),
        bind(destination="kept"),
    ):
        a.ask(command)
        settle(a, b)
    kept = [
        (record.definition.command, record.number if record.key.kind == "queue" else 0)
        for record in a.metadata.copy.records.values()
    ]
    after: list[Command] = [
        DeleteQueue(vhost="/", name="old"),
        queue("old"),
        queue("new"),
        bind(destination="new"),
    ]
    for change in after:
        b.ask(change)
        settle(a, b)
    again = Member(etcd, "a", run="2")
    again.node.proposer = None
    again.node.restore([command for command, _ in sorted(kept, key=lambda each: _place(each[0]))])
    again.node.proposer = again.metadata
    survivor = again.node.vhosts["/"].queues["kept"]
    again.metadata.assume(kept)
    settle(again)
    assert topology(again.node) == topology(b.node)
    assert again.node.vhosts["/"].queues["kept"] is survivor
    assert not again.node.vhosts["/"].queues["old"].is_here


def _place(command: Command) -> int:
    return [AddVhost, DeclareExchange, DeclareQueue, Bind].index(type(command))


def test_an_etcd_that_is_older_than_what_was_seen_is_refused(etcd: ModelEtcd) -> None:
    [a] = cluster(etcd, "a")
    with pytest.raises(ValueError, match="backup"):
        a.metadata.load(1, [])
    assert "/" in a.node.vhosts


def test_a_node_that_takes_over_does_not_send_clients_to_itself(etcd: ModelEtcd) -> None:
    a, _ = cluster(etcd, "a", "b")
    leaders = {0: "a", 1: "b", 2: ""}
    a.metadata.leader_of = leaders.__getitem__
    assert a.metadata.where_is(shard_home(0)) == ""
    assert a.metadata.where_is(shard_home(1)).startswith("node 'b'")
    assert a.metadata.where_is(shard_home(2)) == ""
