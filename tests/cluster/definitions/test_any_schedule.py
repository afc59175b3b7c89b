"""Any interleaving of several nodes' changes, lost answers, late and lost events: nodes at the same revision
have the same model, and every answer to a client was true while it waited.
"""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.definitions.model_etcd import Asked, Member, ModelEtcd, settle, topology
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import (
    AddVhost,
    Bind,
    ClearGlobalParameter,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
    PauseQueue,
    PutPolicy,
    PutUser,
    ResumeQueue,
    SetGlobalParameter,
    SetParameter,
    SetPermissions,
    SetTopicPermissions,
    SetVhostLimits,
    Unbind,
)
from warren.cluster.definitions.definition import path_of, removal_of
from warren.storage.command_text import command_to_json
from warren.storage.definition_keys import REMOVING, REPLACING, key_of

ALL = Permissions(".*", ".*", ".*")
V = "v"
MAKING: list[Command] = [
    AddVhost(name=V),
    PutUser(name="u", password=None),
    PutUser(name="u", password=None, tags=frozenset({"management"})),
    SetPermissions(user="u", vhost=V, permissions=ALL),
    PutPolicy(vhost=V, name="p", pattern="q", definition={"max-length": 3}),
    SetParameter(vhost=V, component="c", name="n", value=1),
    SetVhostLimits(vhost=V, max_queues=50),
    SetGlobalParameter(name="g", value={"x": 1}),
    SetTopicPermissions(user="u", vhost=V, exchange="e", permissions=TopicPermissions(".*", ".*")),
    PauseQueue(vhost=V, name="q"),
    DeclareExchange(vhost=V, name="e", type="direct"),
    DeclareExchange(vhost=V, name="e", type="fanout"),
    DeclareExchange(vhost=V, name="auto", type="direct", auto_delete=True, durable=False),
    DeclareExchange(vhost=V, name="late", type="x-delayed-message", arguments={"x-delayed-type": "direct"}),
    DeclareQueue(vhost=V, name="q", durable=True),
    DeclareQueue(vhost=V, name="q", durable=True, arguments={"x-max-length": 5}),
    DeclareQueue(vhost=V, name="r"),
    Bind(vhost=V, source="e", destination="q", to_queue=True),
    Bind(vhost=V, source="auto", destination="q", to_queue=True),
    Bind(vhost=V, source="e", destination="auto", to_queue=False),
    Bind(vhost=V, source="amq.topic", destination="r", to_queue=True, routing_key="#"),
]
REMOVED: list[Command] = [
    DeleteVhost(name=V),
    DeleteUser(name="u"),
    ResumeQueue(vhost=V, name="q"),
    ClearGlobalParameter(name="g"),
    DeleteExchange(vhost=V, name="e"),
    DeleteExchange(vhost=V, name="late"),
    DeleteQueue(vhost=V, name="q"),
    DeleteQueue(vhost=V, name="r"),
    Unbind(vhost=V, source="e", destination="q", to_queue=True),
    Unbind(vhost=V, source="auto", destination="q", to_queue=True),
]
ASKED = MAKING * 4 + REMOVED[1:] * 3 + REMOVED[:1]  # a vhost that goes takes all with it: not so often
FATES = ["done"] * 8 + ["answer lost", "lost", "late", "refused"]
WATCHES = ["done"] * 12 + ["lost", "in part"]
STEPS = 250
MEMBERS = "abc"


class Schedule:
    """A run of a cluster that one number decides. Whoever finds a mistake can repeat it by that number."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.etcd = ModelEtcd()
        self.members = [Member(self.etcd, name) for name in MEMBERS]
        self.ended: list[Member] = []  # earlier runs of nodes
        settle(*self.members)
        self.members[0].ask(AddVhost(name=V))
        settle(*self.members)
        self.is_calm = self.random.random() < 0.3  # nothing is lost: races are all there is

    def run(self) -> None:
        for _ in range(STEPS):
            self.step(self.random.randrange(len(self.members)))
            check_agreement(self.members)
        for member in (*self.members, *self.ended):
            while member.late:
                member.run_late()

    def step(self, number: int) -> None:
        member = self.members[number]
        chance = self.random.random()
        if chance < 0.2 and not member.wants_load:
            member.ask(self.random.choice(ASKED))
        elif chance < 0.5 and member.requests:
            member.run_request(self.fate(FATES))
        elif chance < 0.8 and member.seen < len(self.etcd.history) and not member.wants_load:
            member.watch(self.fate(WATCHES))
        elif chance < 0.85:
            member.load()
        elif chance < 0.9:
            member.run_late()
        elif chance < 0.99 or self.is_calm:
            member.pass_time(self.random.choice([0.1, 0.3, 1.1]))
        else:
            self.restart(number)

    def fate(self, fates: list[str]) -> str:
        return "done" if self.is_calm else self.random.choice(fates)

    def restart(self, number: int) -> None:
        member = self.members[number]
        self.ended.append(member)
        self.members[number] = again = Member(self.etcd, member.name, run=member.run + "+")
        for request in member.requests:
            if request.transaction is not None:
                member.late.append(request.transaction)
        again.load()
        again.metadata.clear_up()


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_nodes_agree_and_answers_were_true(seed: int) -> None:
    schedule = Schedule(seed)
    schedule.run()
    settle(*schedule.members)
    check_agreement(schedule.members)
    fresh = Member(schedule.etcd, "d")
    settle(fresh)
    for member in schedule.members:
        assert topology(member.node) == topology(fresh.node)
        assert not member.world.errors
    for member in (*schedule.members, *schedule.ended):
        for asked in member.asked:
            check_answer(schedule.etcd, member, asked)


def check_agreement(members: list[Member]) -> None:
    known: dict[int, dict[str, object]] = {}
    for member in members:
        found = topology(member.node)
        assert known.setdefault(member.metadata.copy.revision, found) == found


def check_answer(etcd: ModelEtcd, member: Member, asked: Asked) -> None:
    """There was a moment between question and answer at which the answer was right."""
    if asked.applied is None:  # the node was restarted before
        return
    error = asked.applied.error
    if error is not None and error.code == 405:
        return  # etcd could not be asked in time: that says nothing
    since = 1 if member.was_cut_off and error is None else asked.since
    moments = etcd.truth[since : asked.until + 1]
    assert any(is_right(truth, asked.command, 0 if error is None else error.code) for truth in moments), (
        f"{asked.command} was answered with {error}"
    )


def is_right(truth: dict[str, bytes], command: Command, code: int) -> bool:
    path = path_of(key_of(command))
    found = truth.get(path)
    if type(command) in REMOVING:
        return found is None if code == 0 else code == 404
    ((name, wanted),) = command_to_json(command).items()
    is_equal = found is not None and json.loads(found)[name] == wanted
    if code == 0:
        return is_equal
    if code == 406:
        return found is not None and not is_equal
    lacking = [need for need in key_of(command).needs if path_of(need) not in truth]
    return code == 404 and (bool(lacking) or found is None)


def test_every_command_of_the_schedules_has_its_opposite() -> None:
    """The schedules know what removes what: else they would test less than they seem to."""
    for command in MAKING:
        opposite = removal_of(command)
        assert path_of(key_of(opposite)) == path_of(key_of(command))
        assert type(opposite) in REMOVING | REPLACING
