"""The definitions against a model that looks through everything, and their file against all damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from warren.broker import commands as c
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import BindingCommand, Command
from warren.broker.passwords import PasswordHash
from warren.broker.vhost_metadata import VhostMetadata
from warren.storage.command_text import command_to_json
from warren.storage.definitions import Definitions
from warren.storage.definitions_recovery import RecoveredDefinitions, recover_definitions

PREDECLARED = ["", "amq.topic"]
vhosts = st.sampled_from(["/", "\udcff"])
names = st.sampled_from(["a", "b", "c"])
ends = st.sampled_from(["a", "b", "c", "amq.topic"])
arguments = st.sampled_from([{}, {"x": 1}, {"x": 1.5}])
binding = {
    "vhost": vhosts, "source": ends, "destination": ends, "to_queue": st.booleans(),
    "routing_key": st.sampled_from(["", "k"]), "arguments": arguments,
}  # fmt: skip
durable = st.sampled_from([True, True, False])
all_commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(c.AddVhost, name=vhosts),
    st.builds(
        c.PutUser,
        name=names,
        password=st.sampled_from([None, PasswordHash("scrypt", "AAAA")]),
        tags=st.frozensets(names),
    ),
    st.builds(c.DeleteUser, name=names),
    st.builds(c.SetUserLimits, user=names, max_channels=st.sampled_from([None, 0, 5])),
    st.builds(c.SetVhostLimits, vhost=vhosts, max_queues=st.sampled_from([None, 0, 5])),
    st.builds(
        c.SetVhostMetadata, vhost=vhosts, metadata=st.builds(VhostMetadata, names, st.frozensets(names))
    ),
    st.builds(
        c.SetParameter, vhost=vhosts, component=names, name=names, value=st.sampled_from([1, {"x": 1}])
    ),
    st.builds(c.ClearParameter, vhost=vhosts, component=names, name=names),
    st.builds(c.SetGlobalParameter, name=names, value=st.sampled_from([1, {"x": 1}])),
    st.builds(c.ClearGlobalParameter, name=names),
    st.builds(
        c.PutPolicy,
        vhost=vhosts,
        name=names,
        pattern=st.just("^a"),
        definition=st.sampled_from([{"max-length": 1}, {"ha-params": ["n"]}]),
        operator=st.booleans(),
    ),
    st.builds(c.DeletePolicy, vhost=vhosts, name=names, operator=st.booleans()),
    st.builds(c.SetPermissions, user=names, vhost=vhosts, permissions=st.builds(Permissions, names)),
    st.builds(
        c.SetTopicPermissions,
        user=names,
        vhost=vhosts,
        exchange=ends,
        permissions=st.builds(TopicPermissions, names),
    ),
    st.builds(
        c.DeclareExchange,
        vhost=vhosts,
        name=ends,
        type=st.just("topic"),
        durable=durable,
        arguments=arguments,
    ),
    st.builds(c.DeleteExchange, vhost=vhosts, name=ends),
    st.builds(c.DeclareQueue, vhost=vhosts, name=names, durable=durable, arguments=arguments),
    st.builds(c.DeleteQueue, vhost=vhosts, name=names),
    st.builds(c.PauseQueue, vhost=vhosts, name=names),
    st.builds(c.ResumeQueue, vhost=vhosts, name=names),
    st.builds(c.Bind, **binding),
    st.builds(c.Bind, **binding),
    st.builds(c.Unbind, **binding),
)
histories = st.lists(all_commands, max_size=40)


def text(command: Command) -> str:
    return json.dumps(command_to_json(command))


def facts(definitions: Definitions) -> set[str]:
    return set(map(text, definitions.commands()))


@dataclass
class Model:
    """All commands that hold; whether something is there is found by looking at each."""

    held: list[Command] = field(default_factory=list)

    def facts(self) -> set[str]:
        return set(map(text, self.held))

    def drop(self, goes: Callable[[Command], bool]) -> None:
        self.held = [command for command in self.held if not goes(command)]

    def has(self, kind: type, vhost: str, name: str) -> bool:
        if kind is c.DeclareExchange and name in PREDECLARED:
            return True
        wanted = {"vhost": vhost, "name": name}
        return any(isinstance(h, kind) and wanted.items() <= _strings(h).items() for h in self.held)

    def carry_out(self, command: Command, *, from_file: bool = False) -> None:
        """A file never declares what is there: the line of its deletion must have been lost."""
        if from_file:
            self.remove_what_it_makes(command)
        match command:
            case c.AddVhost(name=name):
                self.make_vhost(name)
            case c.PutUser(name=name):
                self.drop(lambda h: isinstance(h, c.PutUser) and h.name == name)
                self.held.append(command)
            case c.SetPermissions() | c.SetTopicPermissions() | c.SetUserLimits():
                self.grant(command)
            case c.SetGlobalParameter(name=name):
                self.drop(lambda h: isinstance(h, c.SetGlobalParameter) and h.name == name)
                self.held.append(command)
            case c.SetVhostLimits() | c.SetVhostMetadata() | c.SetParameter() | c.PutPolicy():
                self.put_in_vhost(command)
            case c.DeclareExchange() | c.DeclareQueue():
                self.declare(command)
            case c.PauseQueue():
                self.pause(command)
            case c.Bind():
                self.bind(command)
            case _:
                self.remove(command)

    def remove_what_it_makes(self, command: Command) -> None:
        match command:
            case c.DeclareExchange(vhost=vhost, name=name):
                self.remove(c.DeleteExchange(vhost=vhost, name=name))
            case c.DeclareQueue(vhost=vhost, name=name):
                self.remove(c.DeleteQueue(vhost=vhost, name=name))

    def make_vhost(self, name: str) -> None:
        if c.AddVhost(name=name) not in self.held:
            self.held.append(c.AddVhost(name=name))

    def put_in_vhost(
        self, command: c.SetVhostLimits | c.SetVhostMetadata | c.SetParameter | c.PutPolicy
    ) -> None:
        match command:
            case c.SetParameter():
                self.drop(lambda h: is_parameter(h, command))
            case c.PutPolicy():
                self.drop(lambda h: is_policy(h, command))
            case _:
                self.drop(lambda h: type(h) is type(command) and getattr(h, "vhost", "") == command.vhost)
        self.make_vhost(command.vhost)
        self.held.append(command)

    def grant(self, command: c.SetPermissions | c.SetTopicPermissions | c.SetUserLimits) -> None:
        def subject(held: Command) -> object:
            return (type(held), getattr(held, "user", ""), getattr(held, "vhost", ""), exchange(held))

        def exchange(held: Command) -> object:
            return getattr(held, "exchange", "")

        if any(isinstance(h, c.PutUser) and h.name == command.user for h in self.held):
            self.drop(lambda h: subject(h) == subject(command))
            self.held.append(command)

    def declare(self, command: c.DeclareExchange | c.DeclareQueue) -> None:
        if command.durable and not self.has(type(command), command.vhost, command.name):
            self.make_vhost(command.vhost)
            self.held.append(command)

    def pause(self, command: c.PauseQueue) -> None:
        if self.has(c.DeclareQueue, command.vhost, command.name) and command not in self.held:
            self.held.append(command)

    def bind(self, command: c.Bind) -> None:
        to = c.DeclareQueue if command.to_queue else c.DeclareExchange
        both = self.has(c.DeclareExchange, command.vhost, command.source) and self.has(
            to, command.vhost, command.destination
        )
        if both and command not in self.held:
            self.make_vhost(command.vhost)
            self.held.append(command)

    def remove(self, command: Command) -> None:
        match command:
            case c.DeleteUser(name=name):
                self.drop(lambda h: isinstance(h, c.PutUser) and h.name == name)
                self.drop(lambda h: getattr(h, "user", None) == name)
            case c.ClearParameter():
                self.drop(lambda h: is_parameter(h, command))
            case c.ClearGlobalParameter(name=name):
                self.drop(lambda h: isinstance(h, c.SetGlobalParameter) and h.name == name)
            case c.DeletePolicy():
                self.drop(lambda h: is_policy(h, command))
            case c.ResumeQueue(vhost=vhost, name=name):
                self.drop(lambda h: h == c.PauseQueue(vhost=vhost, name=name))
            case c.DeleteQueue(vhost=vhost, name=name):
                self.drop(lambda h: h == c.PauseQueue(vhost=vhost, name=name))
                self.drop(lambda h: isinstance(h, c.DeclareQueue) and (h.vhost, h.name) == (vhost, name))
                self.drop(lambda h: isinstance(h, c.Bind) and h.vhost == vhost and leads_to(h, name))
            case c.DeleteExchange(vhost=vhost, name=name) if name not in PREDECLARED:
                self.drop(lambda h: isinstance(h, c.DeclareExchange) and (h.vhost, h.name) == (vhost, name))
                self.drop(lambda h: isinstance(h, c.Bind) and h.vhost == vhost and touches(h, name))
            case c.Unbind():
                self.drop(lambda h: isinstance(h, c.Bind) and vars(h) == vars(command))


def _strings(held: Command) -> dict[str, str]:
    return {name: value for name, value in vars(held).items() if isinstance(value, str)}


def is_parameter(held: Command, which: c.SetParameter | c.ClearParameter) -> bool:
    if not isinstance(held, c.SetParameter):
        return False
    return (held.vhost, held.component, held.name) == (which.vhost, which.component, which.name)


def is_policy(held: Command, which: c.PutPolicy | c.DeletePolicy) -> bool:
    if not isinstance(held, c.PutPolicy):
        return False
    return (held.vhost, held.name, held.operator) == (which.vhost, which.name, which.operator)


def leads_to(held: BindingCommand, queue: str) -> bool:
    return held.to_queue and held.destination == queue


def touches(held: BindingCommand, exchange: str) -> bool:
    return held.source == exchange or (not held.to_queue and held.destination == exchange)


@dataclass
class Written:
    """A file, the commands that have a line in it, and what held after each of its lines."""

    data: bytes
    commands: list[Command]
    moments: list[set[str]]


def write(history: list[Command]) -> Written:
    definitions = Definitions()
    written = Written(definitions.take_pending(), [], [set()])
    for command in history:
        if definitions.record(command):
            written.data += definitions.take_pending()
            written.commands.append(command)
            written.moments.append(facts(definitions))
    return written


@given(histories, st.data())
def test_file_says_what_the_model_says_whenever_it_is_read_or_compacted(
    history: list[Command], data: st.DataObject
) -> None:
    definitions, model, file = Definitions(), Model(), b""
    for command in history:
        before = model.facts()
        changed = definitions.record(command)
        model.carry_out(command)
        assert changed or model.facts() == before
        step = data.draw(st.sampled_from(["leave", "write", "compact", "reopen"]))
        if step == "compact":
            file = definitions.compacted()
        elif step != "leave":
            file += definitions.take_pending()
            found = recover_definitions(file)
            assert found.problems == []
            assert found.definitions.commands() == definitions.commands()
            assert found.definitions.numbers == definitions.numbers
            assert found.definitions.next_queue_number == definitions.next_queue_number
            assert found.definitions.lines == definitions.lines
            definitions = found.definitions if step == "reopen" else definitions
        assert facts(definitions) == model.facts()


@given(histories)
def test_no_number_is_given_to_two_queues(history: list[Command]) -> None:
    definitions = Definitions()
    given_numbers: list[int] = []
    for command in history:
        if definitions.record(command) and isinstance(command, c.DeclareQueue):
            given_numbers.append(definitions.queue_number(command.vhost, command.name))
            definitions = recover_definitions(definitions.compacted()).definitions
    assert given_numbers == list(range(1, len(given_numbers) + 1))


@given(histories, st.data())
def test_file_cut_anywhere_is_the_lines_before_and_a_torn_tail(
    history: list[Command], data: st.DataObject
) -> None:
    written = write(history)
    cut = written.data[: data.draw(st.integers(0, len(written.data)))]
    found = recover_definitions(cut)
    whole = cut.rfind(b"\n") + 1
    torn = [(p.offset, p.text) for p in found.problems if p.torn_tail]
    assert torn == ([(whole, cut[whole:])] if whole < len(cut) else [])
    assert len(found.problems) == len(torn)
    assert found.intact_bytes == whole
    assert facts(found.definitions) == written.moments[max(cut.count(b"\n") - 1, 0)]


@given(histories, st.data())
def test_changed_byte_loses_no_more_than_its_line_and_what_hangs_on_it(
    history: list[Command], data: st.DataObject
) -> None:
    written = write(history)
    at = data.draw(st.integers(0, len(written.data) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != written.data[at]))
    damaged = written.data[:at] + bytes((other,)) + written.data[at + 1 :]
    found = recover_definitions(damaged)
    line = written.data.count(b"\n", 0, at)  # the first one has no command
    last = line == len(written.commands)
    if written.data[at : at + 1] == b"\n" and not last:
        assert found.problems == []
        assert facts(found.definitions) == written.moments[-1]
        return
    assert found.problems[0].line == line + 1
    assert any(problem.torn_tail for problem in found.problems) == last
    assert facts(found.definitions) == without(written.commands, line - 1)
    check_appending(found, damaged)


def without(commands: list[Command], lost: int) -> set[str]:
    model = Model()
    for number, command in enumerate(commands):
        if number != lost:
            model.carry_out(command, from_file=True)
    return model.facts()


def check_appending(found: RecoveredDefinitions, damaged: bytes) -> None:
    """What is recorded after damage is read back together with what was understood before."""
    definitions = found.definitions
    for command in (c.AddVhost(name="/"), c.DeclareQueue(vhost="/", name="late", durable=True)):
        definitions.record(command)
    again = recover_definitions(damaged[: found.intact_bytes] + definitions.take_pending())
    assert again.definitions.commands() == definitions.commands()
    assert again.definitions.numbers == definitions.numbers


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    found = recover_definitions(data)
    assert found.definitions.commands() == []
    assert found.intact_bytes == 0
