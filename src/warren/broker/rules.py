"""The rules of queues: what a queue's arguments, its policy and its operator policy ask for.

A rule has the name of its argument, such as `x-message-ttl`; in a policy it is the same without the `x-`. If
several of the three set a rule, the lowest value wins for a limit. For other rules, the argument wins over
the operator policy, and the operator policy over the policy.

To add a rule, add a row to `RULES` (its name, how its value is read, where it may be set, for which queues),
a field with the default to `Rules`, and the behaviour to `Rulebook` or `Stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value
from warren.broker.interval import interval_ms

Items: TypeAlias = tuple[tuple[str, Value], ...]

TIME_MS_MAX = 100 * 365 * 24 * 3600 * 1000  # a hundred years
COUNT_MAX = 2**63 - 1
RULES_CACHED_MAX = 1_000
PRIORITY_MAX = 255
NAME_BYTES_MAX = 255
QUORUM_DELIVERY_LIMIT = 20
RETRY_DELAY_MS_MAX = 24 * 3600 * 1000
CACHE_SIZE = 10_000  # messages that deduplication remembers
CACHE_SIZE_MAX = 1_000_000  # each takes about 250 bytes of memory
CACHE_HEADER = "x-deduplication-header"
CLASSIC, QUORUM, STREAM = QUEUE_TYPES = ("classic", "quorum", "stream")
SEGMENT_BYTES_MAX = 3_000_000_000  # places in a segment are numbers of 32 bits
DROP_HEAD, REJECT, REJECT_TO_DLX = OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_MODES = ("default", "lazy")
LEADER_LOCATORS = ("client-local", "balanced", "random", "least-leaders")
MASTER_LOCATORS = ("client-local", "min-masters", "random")
DEAD_LETTER_STRATEGIES = ("at-most-once", "at-least-once")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The values that are in force for one queue. None stands for no limit. README.md says what each does."""

    message_ttl: int | None = None  # milliseconds
    expires: int | None = None  # milliseconds without use, until the queue is deleted
    max_length: int | None = None  # messages
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD  # one of OVERFLOWS
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int = 0  # the highest level of priority; 0 for a queue without priorities
    single_active_consumer: bool = False
    delivery_limit: int | None = None  # how often a message may be given back
    consumer_timeout: int | None = None
    """Milliseconds in which a delivery must be acknowledged. 0 is no limit, None is the node's limit."""
    retry_delay_min: int | None = None  # milliseconds; None if messages return at once
    retry_delay_max: int = RETRY_DELAY_MS_MAX  # milliseconds
    group_header: str | None = None  # messages with the same value of this header are a group
    message_deduplication: bool = False
    cache_size: int = CACHE_SIZE  # messages that deduplication remembers
    cache_ttl: int | None = None  # milliseconds for which deduplication remembers a message
    deduplication_header: str = CACHE_HEADER  # the header by which duplicates are known
    max_age: int | None = None  # milliseconds that a stream keeps a message
    stream_max_segment_size_bytes: int | None = None
    tells_delivery_count: bool = False
    """Whether redeliveries carry the header `x-delivery-count`: if a rule counts deliveries, and always in
    quorum queues.
    """
    keeps_transient: bool = False
    """Whether messages go to disk whatever their delivery mode is: in quorum queues."""

    @cached_property
    def need_rulebook(self) -> bool:
        """Whether a rule is set for which the queue needs a rulebook."""
        return self.keeps_transient or any(
            getattr(self, rule.field) != rule.default for rule in RULES if rule.needs_rulebook
        )


@dataclass(frozen=True)
class Rule:
    """One rule: how its value is read, where it may be set, and for which queues."""

    name: str
    """The name of the setting in a policy; with `x-` in front, the name of the argument."""
    read: Callable[[Value], Any]
    """Converts what a client wrote to the rule's value; ValueError, with the reason, if it makes no sense."""
    most: int | None = None
    """The highest value that may be set. A higher one, from before this bound existed, counts as this."""
    limit: bool = False
    """Whether the lowest value wins, if several are set."""
    in_policies: bool = True
    """Whether policies may set it."""
    in_operator_policies: bool = False
    """Whether operator policies may set it."""
    stricter: Callable[[Value], Any] | None = None
    """Reads new values, in the place of `read`. Definitions on disk may be older than this stricter check."""
    types: tuple[str, ...] = (CLASSIC, QUORUM)
    """The types of queues that the rule is for."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """By type of queue, the default, where it is not that of the field of `Rules`."""
    counts_deliveries: bool = False
    """Whether the rule depends on how often a message was delivered."""
    needs_rulebook: bool = True
    """Whether a queue with this rule needs a rulebook. Others only read the value in `Queue.rules`."""

    def check(self, value: Value) -> None:
        """ValueError, with the reason, if this value may not be set."""
        read = (self.stricter or self.read)(value)
        if self.most is not None and read > self.most:
            raise ValueError(f"{value!r} is more than {self._most_shown}")

    def value(self, value: Value) -> Any:
        """The rule's value for what a client wrote. None for a value that makes no sense: a queue may have
        been declared with it before there was such a rule, and its messages must still be found.
        """
        try:
            read = self.read(value)
        except ValueError:
            return None
        return read if self.most is None else min(read, self.most)

    @property
    def _most_shown(self) -> str:
        return "100 years" if self.most == TIME_MS_MAX else str(self.most)

    @property
    def argument(self) -> str:
        return "x-" + self.name

    @property
    def field(self) -> str:
        """The name of the field of `Rules`."""
        return self.name.replace("-", "_")

    @cached_property
    def default(self) -> Any:
        return Rules.__dataclass_fields__[self.field].default


def whole_number(least: int, most: int) -> Callable[[Value], int]:
    """A function that reads whole numbers from `least` to `most`."""

    def read(value: Value) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"expected a whole number, not {_kind(value)}")  # noqa: TRY004 - it is the value's
        if not least <= value <= most:
            raise ValueError(f"{value} is not within {least} and {most}")
        return int(value)

    return read


def delivery_limit(value: Value) -> int | None:
    """A limit of deliveries; -1 stands for no limit."""
    limit = whole_number(-1, COUNT_MAX)(value)
    return None if limit < 0 else limit


def text(value: Value) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, not {_kind(value)}")  # noqa: TRY004
    if len(value.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise ValueError(f"longer than {NAME_BYTES_MAX} bytes")
    return value


def name(value: Value) -> str:
    if not text(value):
        raise ValueError("expected a name, not an empty string")
    return text(value)


def truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected a boolean, not {_kind(value)}")  # noqa: TRY004
    return value


def one_of(*known: str) -> Callable[[Value], str]:
    def read(value: Value) -> str:
        if text(value) not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
        return text(value)

    return read


def age(value: Value) -> int:
    """An interval such as `7D`, in milliseconds."""
    return interval_ms(text(value))


def some_age(value: Value) -> int:
    """An interval above 0."""
    if age(value) == 0:
        raise ValueError(f"{value!r} is no age")
    return age(value)


def _kind(value: Value) -> str:
    return f"{value!r} ({type(value).__name__})"


RULES = (  # in the order in which RabbitMQ checks them: it reports the first one that is wrong
    Rule("expires", whole_number(1, TIME_MS_MAX), limit=True, in_operator_policies=True),
    Rule("message-ttl", whole_number(0, TIME_MS_MAX), limit=True, in_operator_policies=True),
    Rule("dead-letter-exchange", text, needs_rulebook=False),
    Rule("dead-letter-routing-key", text, needs_rulebook=False),
    Rule("max-length", whole_number(0, COUNT_MAX), limit=True, in_operator_policies=True, types=QUEUE_TYPES),
    Rule(
        "max-length-bytes",
        whole_number(0, COUNT_MAX),
        limit=True,
        in_operator_policies=True,
        types=QUEUE_TYPES,
    ),
    Rule("max-priority", whole_number(0, PRIORITY_MAX), in_policies=False),
    Rule("overflow", one_of(*OVERFLOWS), in_operator_policies=True),
    Rule("single-active-consumer", truth, in_policies=False),
    Rule(
        "delivery-limit",
        delivery_limit,
        limit=True,
        in_operator_policies=True,
        defaults={QUORUM: QUORUM_DELIVERY_LIMIT},
        counts_deliveries=True,
    ),
    Rule(
        "consumer-timeout",
        whole_number(0, TIME_MS_MAX),
        defaults={STREAM: 0},  # a reader that holds messages keeps nobody else waiting
        needs_rulebook=False,
    ),
    Rule("retry-delay-min", whole_number(1, TIME_MS_MAX), counts_deliveries=True),
    Rule("retry-delay-max", whole_number(1, TIME_MS_MAX)),
    Rule("group-header", name, in_policies=False),
    Rule("message-deduplication", truth, in_policies=False),
    Rule("cache-size", whole_number(1, COUNT_MAX), most=CACHE_SIZE_MAX, in_policies=False),
    Rule("cache-ttl", whole_number(1, TIME_MS_MAX), in_policies=False),
    Rule("deduplication-header", name, in_policies=False),
    Rule(
        "max-age",
        age,
        most=TIME_MS_MAX,
        limit=True,
        in_operator_policies=True,
        stricter=some_age,
        types=(STREAM,),
    ),
    Rule("stream-max-segment-size-bytes", whole_number(1, SEGMENT_BYTES_MAX), types=(STREAM,)),
)
OF_RABBITMQ_ONLY = (  # arguments of RabbitMQ about copies and storage that are no rules; most are ignored
    Rule("queue-mode", one_of(*QUEUE_MODES), types=(CLASSIC,)),
    Rule("queue-version", whole_number(1, 2), types=(CLASSIC,)),
    Rule("queue-master-locator", one_of(*MASTER_LOCATORS), types=(CLASSIC,)),
    Rule("queue-leader-locator", one_of(*LEADER_LOCATORS), types=QUEUE_TYPES),
    Rule("initial-cluster-size", whole_number(1, COUNT_MAX), types=(STREAM,)),
    Rule("quorum-initial-group-size", whole_number(1, COUNT_MAX), in_policies=False, types=(QUORUM,)),
    Rule("max-in-memory-length", whole_number(0, COUNT_MAX), in_operator_policies=True, types=(QUORUM,)),
    Rule("max-in-memory-bytes", whole_number(0, COUNT_MAX), in_operator_policies=True, types=(QUORUM,)),
    Rule("dead-letter-strategy", one_of(*DEAD_LETTER_STRATEGIES), types=(QUORUM,)),
)
TYPE = Rule("queue-type", one_of(*QUEUE_TYPES), in_policies=False, types=QUEUE_TYPES)
ARGUMENTS = (TYPE, *RULES, *OF_RABBITMQ_ONLY)
ALTERNATE_EXCHANGE = "alternate-exchange"  # an argument of exchanges, and a setting of policies
EXCHANGE_ARGUMENTS = {"x-message-deduplication", "x-cache-size", "x-cache-ttl", "x-deduplication-header"}


def queue_type(arguments: Mapping[str, Value]) -> str:
    return str(arguments.get(TYPE.argument, CLASSIC))


def check_arguments(what: str, arguments: Table) -> None:
    """406 if an argument makes no sense, alone or beside the others."""
    kind = queue_type(arguments)
    for rule in ARGUMENTS:
        if rule.argument in arguments:
            if kind not in rule.types and rule is not TYPE:
                raise not_for_type(rule.argument, what, kind)
            try:
                rule.check(arguments[rule.argument])
            except ValueError as error:
                raise PreconditionFailed(f"invalid arg '{rule.argument}' for {what}: {error}") from None
    for argument, reason in _conflicts(arguments):
        raise PreconditionFailed(f"invalid arg '{argument}' for {what}: {reason}")


def check_readable(what: str, arguments: Table) -> None:
    """406 if the value of an argument cannot be read at all, whatever was allowed when it was declared."""
    for rule in ARGUMENTS:
        if rule.argument in arguments:
            try:
                rule.read(arguments[rule.argument])
            except ValueError as error:
                raise PreconditionFailed(f"invalid arg '{rule.argument}' for {what}: {error}") from None


def not_for_type(argument: str, what: str, kind: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{argument}' for {what} of queue type rabbit_{kind}_queue")


def arguments_of(kind: str) -> list[str]:
    """The arguments that a queue of this type may have."""
    return [rule.argument for rule in ARGUMENTS if kind in rule.types]


def check_exchange_arguments(what: str, arguments: Table) -> None:
    check_arguments(what, _of_exchange(arguments))


def exchange_rules_of(arguments: Table) -> Rules:
    return rules_of(_of_exchange(arguments))


def _of_exchange(arguments: Table) -> Table:
    """The arguments that count for an exchange: those of deduplication."""
    return {name: value for name, value in arguments.items() if name in EXCHANGE_ARGUMENTS}


def _conflicts(arguments: Table) -> list[tuple[str, str]]:
    """Arguments that make no sense beside the others, each with the reason."""
    found = []
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        found.append(("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"))
    if "x-retry-delay-max" in arguments:
        least = arguments.get("x-retry-delay-min")
        if least is None:
            found.append(("x-retry-delay-max", "there is no x-retry-delay-min"))
        elif whole_number(1, TIME_MS_MAX)(arguments["x-retry-delay-max"]) < whole_number(1, TIME_MS_MAX)(
            least
        ):
            found.append(("x-retry-delay-max", f"lower than x-retry-delay-min, {least!r}"))
    return found


def rules_of(
    arguments: Table,
    policy: Mapping[str, Value] | None = None,
    operator_policy: Mapping[str, Value] | None = None,
) -> Rules:
    """The rules of a queue with these arguments and policies, which must have been checked. Very many queues
    have the same arguments and policies, or none: they share one `Rules`.
    """
    sources = (arguments, policy or {}, operator_policy or {})
    if all(isinstance(value, int | str) for source in sources for value in source.values()):
        return _shared_rules(*(tuple(source.items()) for source in sources))
    return _make_rules(*sources)


@lru_cache(RULES_CACHED_MAX)
def _shared_rules(arguments: Items, policy: Items, operator_policy: Items) -> Rules:
    return _make_rules(dict(arguments), dict(policy), dict(operator_policy))


def _make_rules(
    arguments: Mapping[str, Value], policy: Mapping[str, Value], operator_policy: Mapping[str, Value]
) -> Rules:
    values: dict[str, Any] = {}
    kind = queue_type(arguments)
    counts = kind == QUORUM
    for rule in RULES:
        said: list[Value] = []
        if kind in rule.types:
            sources = _sources(rule, arguments, policy, operator_policy)
            said = [source[key] for source, key in sources if key in source]
        read = [value for value in map(rule.value, said) if value is not None]
        if read:
            values[rule.field] = min(read) if rule.limit else read[0]
            counts = counts or rule.counts_deliveries
        elif not said and kind in rule.defaults:
            values[rule.field] = rule.defaults[kind]
    return Rules(**values, tells_delivery_count=counts, keeps_transient=kind == QUORUM)


def _sources(
    rule: Rule,
    arguments: Mapping[str, Value],
    policy: Mapping[str, Value],
    operator_policy: Mapping[str, Value],
) -> list[tuple[Mapping[str, Value], str]]:
    """Where a rule may be set, with its name there: the first one that sets it wins, unless it is a limit."""
    found: list[tuple[Mapping[str, Value], str]] = [(arguments, rule.argument)]
    if rule.in_operator_policies:
        found.append((operator_policy, rule.name))
    if rule.in_policies:
        found.append((policy, rule.name))
    return found
