"""What clients and the model want to change, on its way to etcd and back.

    plan by what the node knows -> transaction -> the node has its revision -> answer
      | nothing to change, or an error     | a compare failed: catch up, plan again
      v                                    | outcome unknown: read, catch up, plan again after a while
    read, catch up, plan again -> answer

What always holds:
- An error is only told, and a change only called unnecessary, when the node has had all changes that were
  made before it was asked. The one exception: while etcd cannot be reached, what is there is said to be.
- One transaction is in flight at a time. It has what waited while the one before was in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from warren.amqp.errors import AmqpError, NotFound, ResourceLocked
from warren.broker.changes import Applied
from warren.broker.commands import Command, DeclareExchange, DeclareQueue, DeleteExchange, DeleteQueue
from warren.broker.node import Node
from warren.cluster.definitions.definition import Home
from warren.cluster.definitions.definition_copy import DefinitionCopy, Record
from warren.cluster.definitions.gateway import Gateway, LastRead
from warren.cluster.definitions.plan import WRITES_MAX, Plan, Planner, still_wanted, transaction_of
from warren.cluster.definitions.proposal import Asker, Flight, Proposal, Stage
from warren.cluster.transactions import Answer, Compare, KeyValue, Outcome

ANSWER_SECONDS_MAX = 10.0  # for a client that waits
RETRY_SECONDS = 0.25  # after etcd could not be reached, or did not say what came of a transaction
BEHIND_SECONDS_MAX = 1.0  # after that a change that did not come is taken for lost
OVERTAKEN_MAX = 50  # times that others get ahead of a change
ALONE_AFTER = 2  # such times: then it goes in a transaction of its own
COMPARES_MAX = 120  # of a transaction
BYTES_MAX = 1_000_000  # of a transaction; etcd refuses 1.5 MiB


class Proposals:
    """Of one node, whose `copy` of the definitions others keep up to date."""

    def __init__(self, node: Node, gateway: Gateway, prefix: str, copy: DefinitionCopy, me: Home) -> None:
        self.node = node
        self.gateway = gateway
        self.prefix = prefix  # of all keys of definitions
        self.copy = copy
        self.me = me  # this node, and its run
        self.planner = Planner(node, copy, me)
        self.leads: Callable[[int], bool] = lambda _shard: False  # whether this node leads a shard
        self.open: dict[Proposal, None] = {}  # all that are not answered
        self.to_send: deque[Proposal] = deque()
        self.to_read: list[Proposal] = []
        self.reading: list[Proposal] = []
        self.behind: list[Proposal] = []
        self.flight: Flight | None = None
        self.asked: set[str] = set()  # paths of what the model has asked to remove
        self.held: dict[str, list[Proposal]] = {}  # by path: wait until what was `asked` is done, then read
        self.to_sweep: dict[str, None] = {}  # paths of what is dead, and is to be removed from etcd
        self.is_pumping = False  # whether `_pump` is to be called
        self.is_resting = False  # whether nothing is asked of etcd for a while
        self.trouble = ""  # why etcd could not be reached the last time

    # --- what is asked for ---

    def propose(self, command: Command, then: Callable[[Applied], None] | None) -> None:
        now = self.node.world.now()
        if then is not None:
            deadline = now + ANSWER_SECONDS_MAX
            self._begin(Proposal(command, Asker.CLIENT, then, now=now, deadline=deadline))
        else:
            self.ask(command, Asker.MODEL)

    def ask(self, command: Command, asker: Asker) -> None:
        """Have a change made some time that no client waits for."""
        proposal = Proposal(command, asker, None, now=self.node.world.now(), deadline=float("inf"))
        record = self.copy.find(proposal.path)
        if isinstance(command, DeleteQueue | DeleteExchange):
            if record is None or proposal.path in self.asked or not self._is_mine(record):
                return
            proposal.created = record.create_revision
        self.asked.add(proposal.path)
        self._begin(proposal)

    def _is_mine(self, record: Record) -> bool:
        """Whether this node looks after a queue or an exchange: it lives here, or this node leads it."""
        home, shard = record.definition.home, record.definition.shard
        if shard is not None:
            return self.leads(shard)
        return home is not None and home.node == self.me.node

    def catch_up(self, then: Callable[[AmqpError | None], None]) -> None:
        now = self.node.world.now()
        waiting = Proposal(
            None,
            Asker.CLIENT,
            lambda applied: then(applied.error),
            now=now,
            deadline=now + ANSWER_SECONDS_MAX,
        )
        self.open[waiting] = None
        self._to_read(waiting)

    def _begin(self, proposal: Proposal) -> None:
        self.open[proposal] = None
        self._consider(proposal, caught_up=proposal.asker is not Asker.CLIENT)

    # --- what comes next ---

    def _consider(self, proposal: Proposal, *, caught_up: bool) -> None:
        """Decide by what this node knows now. `caught_up`: it knows all that was there when it was asked."""
        found = self._plan(proposal)
        if isinstance(found, Plan):
            if proposal.overtaken >= OVERTAKEN_MAX:
                self._answer(proposal, _failed(ResourceLocked("others change this all the time: try again")))
            else:
                proposal.move(Stage.TO_SEND, self.node.world.now())
                self.to_send.append(proposal)
                self.pump_soon()
        elif caught_up:
            self._answer(proposal, found)
        elif proposal.path in self.asked:  # what stands in its way is about to go: wait for that first
            proposal.move(Stage.TO_READ, self.node.world.now())
            self.held.setdefault(proposal.path, []).append(proposal)
        else:
            proposal.known = found
            self._to_read(proposal)

    def _plan(self, proposal: Proposal) -> Plan | Applied:
        command = proposal.command
        if command is None:
            return Applied(changed=False)
        try:
            if proposal.created:
                record = self.copy.find(proposal.path)
                if record is None or record.create_revision != proposal.created:
                    return Applied(changed=False)
            if proposal.asker is Asker.MODEL and not still_wanted(self.node, command):
                return Applied(changed=False)
            return self.planner.plan(command)
        except AmqpError as error:
            return _failed(error)

    def _to_read(self, proposal: Proposal) -> None:
        proposal.move(Stage.TO_READ, self.node.world.now())
        self.to_read.append(proposal)
        self.pump_soon()

    def _wait_for(self, proposal: Proposal, revision: int, *, is_made: bool) -> None:
        """Go on once this node has this revision."""
        proposal.revision, proposal.is_made = revision, is_made
        if self.copy.revision >= revision:
            self._has_caught_up(proposal)
        else:
            proposal.move(Stage.BEHIND, self.node.world.now())
            self.behind.append(proposal)

    def _has_caught_up(self, proposal: Proposal) -> None:
        if proposal.is_made:
            self._answer(proposal, self._made_before(proposal))
        else:
            self._consider(proposal, caught_up=True)

    def _made_before(self, proposal: Proposal) -> Applied:
        """The result of a change that was made, after which others may have come: by what is there now."""
        found = self._plan(proposal)
        if isinstance(found, Applied):
            return found._replace(changed=True) if found.error is None else found
        if isinstance(proposal.command, DeclareQueue | DeclareExchange):  # it was declared, and is not there
            return _failed(NotFound(f"'{proposal.command.name}' was declared, and deleted again at once"))
        return Applied(changed=True, made=0)

    def _answer(self, proposal: Proposal, applied: Applied) -> None:
        proposal.move(Stage.ANSWERED, self.node.world.now())
        self.open.pop(proposal, None)
        if proposal.asker is not Asker.CLIENT:
            self.asked.discard(proposal.path)
            self.to_read += self.held.pop(proposal.path, [])
            self.pump_soon()
        if proposal.then is not None:
            try:
                proposal.then(applied)
            except Exception as error:  # noqa: BLE001 - who asked must not keep others from their answers
                self.node.world.report(error)

    # --- to etcd ---

    def pump_soon(self) -> None:
        """At the end of the turn, so that what is asked for in it goes together."""
        if not self.is_pumping:
            self.is_pumping = True
            self.node.world.call_soon(self._pump)

    def _pump_later(self) -> None:
        """Ask nothing of etcd for a while."""
        if not self.is_resting:
            self.is_resting = True
            self.node.world.call_later(RETRY_SECONDS, self._has_rested)

    def _has_rested(self) -> None:
        self.is_resting = False
        self.pump_soon()

    def _pump(self) -> None:
        self.is_pumping = False
        if self.is_resting:
            return
        if self.flight is None:
            self._send()
        if not self.reading:
            self._read()

    def _read(self) -> None:
        self.reading = [each for each in self.to_read if each.stage is Stage.TO_READ]
        self.to_read = []
        for proposal in self.reading:
            proposal.move(Stage.READING, self.node.world.now())
        if self.reading:
            self.gateway.read_last(self._have_read)

    def _send(self) -> None:
        flight, plan = self._gather()
        if not flight.proposals:
            self._gather_dead(flight, plan)
        if plan.writes:
            self.flight = flight
            for proposal in flight.proposals:
                proposal.sent += 1
                proposal.move(Stage.IN_FLIGHT, self.node.world.now())
            self.gateway.send(transaction_of(plan, self.prefix), self._sent)

    def _gather(self) -> tuple[Flight, Plan]:
        """As much of what waits as fits into one transaction, in order."""
        flight, all_of_it, size = Flight([]), Plan(), 0
        while self.to_send:
            proposal = self.to_send[0]
            found = self._plan(proposal) if proposal.stage is Stage.TO_SEND else None
            if isinstance(found, Plan):
                size += sum(len(definition.text()) for definition in found.puts.values())
                if flight.proposals and not self._fits(all_of_it, found, proposal, size):
                    break
                all_of_it.add(found)
                flight.proposals.append(proposal)
                if found.makes_room:
                    flight.room.add(proposal)
            elif found is not None:  # something has changed since it was planned
                self._settle_unsent(proposal, found)
            self.to_send.popleft()
            if proposal.overtaken >= ALONE_AFTER and flight.proposals:
                break
        return flight, all_of_it

    def _fits(self, gathered: Plan, found: Plan, proposal: Proposal, size: int) -> bool:
        return not (
            proposal.overtaken >= ALONE_AFTER
            or gathered.writes + found.writes > WRITES_MAX
            or len(gathered.compares) + len(found.compares) > COMPARES_MAX
            or size > BYTES_MAX
            or found.depends_on(gathered)
        )

    def _settle_unsent(self, proposal: Proposal, found: Applied) -> None:
        if proposal.asker is Asker.CLIENT:
            proposal.known = found
            self._to_read(proposal)
        else:
            self._answer(proposal, found)

    def _gather_dead(self, flight: Flight, plan: Plan) -> None:
        """Nobody wants anything: remove what is dead from etcd."""
        for path in list(self.to_sweep)[:WRITES_MAX]:
            del self.to_sweep[path]
            record = self.copy.records.get(path)
            if record is not None and not record.alive:
                plan.compares[path] = Compare(path, record.mod_revision)
                plan.deletes.append(path)
                flight.swept.append(path)

    # --- etcd's answers ---

    def _sent(self, answer: Answer) -> None:
        flight, self.flight = self.flight, None
        assert flight is not None, "an answer follows what was sent"
        waiting = [each for each in flight.proposals if each.stage is Stage.IN_FLIGHT]
        if answer.outcome is Outcome.SUCCEEDED:
            self._has_succeeded(waiting, flight, answer.revision)
        elif answer.outcome is Outcome.FAILED:
            [last] = answer.read
            for proposal in waiting:
                proposal.overtaken += 1
                self._wait_for(proposal, 0 if last is None else last.mod_revision, is_made=False)
            self.compare_count(last)
        elif answer.outcome is Outcome.UNKNOWN:
            self._nobody_knows(waiting, flight, answer.reason)
            return
        else:
            self._try_again(waiting, flight, answer.reason)
            return
        self.pump_soon()

    def _has_succeeded(self, waiting: list[Proposal], flight: Flight, revision: int) -> None:
        self.trouble = ""
        for proposal in waiting:
            made_at, applied = flight.results.get(proposal.path, (0, None))
            if proposal in flight.room:
                self._wait_for(proposal, revision, is_made=False)
            elif applied is not None and made_at == revision:  # the watch was faster than the answer
                self._answer(proposal, applied)
            else:
                self._wait_for(proposal, revision, is_made=True)

    def _nobody_knows(self, waiting: list[Proposal], flight: Flight, reason: str) -> None:
        """It may have been made: that is read at once. If not, it is sent again, but not at once: etcd may be
        up, and make nothing, as when it has no space.
        """
        self.trouble = reason
        self.to_sweep |= dict.fromkeys(flight.swept)
        for proposal in waiting:
            proposal.known = None
            proposal.trouble = reason
            self._to_read(proposal)
        if not self.reading:
            self._read()
        self._pump_later()

    def _try_again(self, waiting: list[Proposal], flight: Flight, reason: str) -> None:
        """Nothing was sent."""
        self.trouble = reason
        self.to_sweep |= dict.fromkeys(flight.swept)
        for proposal in reversed(waiting):
            proposal.sent -= 1
            proposal.move(Stage.TO_SEND, self.node.world.now())
            self.to_send.appendleft(proposal)
        self._pump_later()

    def _have_read(self, read: LastRead) -> None:
        waiting = [each for each in self.reading if each.stage is Stage.READING]
        self.reading = []
        if read.reached:
            self.trouble = ""
            for proposal in waiting:
                self._wait_for(proposal, 0 if read.kv is None else read.kv.mod_revision, is_made=False)
            self.compare_count(read.kv)
            self.pump_soon()
            return
        self.trouble = read.reason
        for proposal in waiting:
            if proposal.known is not None and proposal.known.error is None:
                self._answer(proposal, proposal.known)
            else:
                proposal.move(Stage.TO_READ, self.node.world.now())
                self.to_read.append(proposal)
        self._pump_later()

    def compare_count(self, last: KeyValue | None) -> None:
        """If this node has the revision of the last change, it must have counted that one, too."""
        if last is not None and last.mod_revision <= self.copy.revision and last.version > self.copy.count:
            self.gateway.load_again(f"{last.version - self.copy.count} changes of definitions were lost")

    # --- what etcd tells by itself ---

    def have_revision(
        self, revision: int, results: dict[str, Applied], removed: set[str], died: list[Record]
    ) -> None:
        """The node has the changes of this revision, and these are their results by path: answer all who
        waited for it. What has died with something that a change from here has removed is swept up here.
        """
        asked = {each.path for each in self.behind if each.is_made and each.revision == revision}
        if self.flight is not None:
            flying = {proposal.path for proposal in self.flight.proposals}
            self.flight.results |= {path: (revision, results[path]) for path in flying & results.keys()}
            asked |= flying
        if died and not asked.isdisjoint(removed):
            self.to_sweep |= dict.fromkeys(record.path for record in died)
            self.pump_soon()
        behind, self.behind = self.behind, []
        for proposal in behind:
            if proposal.stage is not Stage.BEHIND:
                continue
            if proposal.revision > revision:
                self.behind.append(proposal)
            elif proposal.is_made and proposal.revision == revision and proposal.path in results:
                self._answer(proposal, results[proposal.path])
            else:
                self._has_caught_up(proposal)

    # --- from time to time ---

    def check_times(self) -> None:
        """Answer clients who have waited for too long; notice changes that do not come."""
        now = self.node.world.now()
        for proposal in [each for each in self.open if each.deadline <= now]:
            self._answer(proposal, _failed(ResourceLocked(self._why_not(proposal))))
        behind = (each for each in self.behind if each.stage is Stage.BEHIND)
        if any(each.since + BEHIND_SECONDS_MAX <= now for each in behind):
            self.gateway.load_again("a change of definitions did not come")

    def _why_not(self, proposal: Proposal) -> str:
        because = proposal.trouble or self.trouble or "it does not answer"
        what = f"no agreement with etcd within {ANSWER_SECONDS_MAX:.0f} s ({because})"
        if proposal.sent:
            return f"{what}: the change may still be made; try again when etcd works"
        return f"{what}: nothing was changed; try again when etcd works"


def _failed(error: AmqpError) -> Applied:
    return Applied(changed=False, error=error)
