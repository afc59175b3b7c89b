"""What a queue is to do with its messages, as its arguments and the policies for it say.

Each rule is known by the name of its argument, `x-message-ttl`, and in a policy by the same without the `x-`.
Where more than one says something, the lowest number holds for limits; for the rest the argument comes before
the operator's policy, and that before the policy.

To add a rule: a row in `RULES`, which has its name, its reading, where it may be said and for which queues; a
field of `Rules` with its default; and what it does, in `Rulebook` or `Stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value
from warren.broker.interval import interval_ms

TIME_MS_MAX = 100 * 365 * 24 * 3600 * 1000  # a hundred years
COUNT_MAX = 2**63 - 1
RULES_CACHED_MAX = 1_000
PRIORITY_MAX = 255
NAME_BYTES_MAX = 255
QUORUM_DELIVERY_LIMIT = 20
RETRY_DELAY_MS_MAX = 24 * 3600 * 1000
CACHE_SIZE = 10_000
CACHE_SIZE_MAX = 1_000_000  # each takes about 250 bytes of memory
CACHE_HEADER = "x-deduplication-header"
CLASSIC, QUORUM, STREAM = QUEUE_TYPES = ("classic", "quorum", "stream")
SEGMENT_BYTES_MAX = 3_000_000_000  # a place in a segment has 32 bits
DROP_HEAD, REJECT, REJECT_TO_DLX = OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_MODES = ("default", "lazy")
LEADER_LOCATORS = ("client-local", "balanced", "random", "least-leaders")
MASTER_LOCATORS = ("client-local", "min-masters", "random")
DEAD_LETTER_STRATEGIES = ("at-most-once", "at-least-once")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The values that hold for one queue. None stands for no limit."""

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int = 0
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    consumer_timeout: int | None = None
    """Milliseconds; 0 stands for no limit, and None for the node's."""
    retry_delay_min: int | None = None
    retry_delay_max: int = RETRY_DELAY_MS_MAX
    group_header: str | None = None
    message_deduplication: bool = False
    cache_size: int = CACHE_SIZE
    cache_ttl: int | None = None
    deduplication_header: str = CACHE_HEADER
    max_age: int | None = None
    stream_max_segment_size_bytes: int | None = None
    tells_delivery_count: bool = False
    """Whether redeliveries say in a header how often: of quorum queues, and where a rule counts them."""

    @cached_property
    def need_rulebook(self) -> bool:
        """Whether a queue has to do more for these rules than to know them."""
        return any(getattr(self, rule.field) != rule.default for rule in RULES if not rule.is_only_known)


@dataclass(frozen=True)
class Rule:
    name: str
    """In a policy, and with `x-` as an argument."""
    read: Callable[[Value], Any]
    """Gives the value that holds, or raises ValueError with the reason why it makes no sense."""
    most: int | None = None
    """Nobody may ask for more; what was declared before there was such a bound counts as that."""
    limit: bool = False
    """Whether the lowest value that is said holds."""
    in_policies: bool = True
    in_operator_policies: bool = False
    stricter: Callable[[Value], Any] | None = None
    """A reading that new values must pass too, which older definitions did not know."""
    types: tuple[str, ...] = (CLASSIC, QUORUM)
    """The types of the queues that it is for."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What holds for a type of queues if nobody says anything, unless that is the field's default."""
    counts_deliveries: bool = False
    """Whether what the queue does depends on how often a message was delivered."""
    is_only_known: bool = False
    """Whether the queue only has to know the value, and needs no rulebook for it."""

    def check(self, value: Value) -> None:
        """ValueError, with the reason, if nobody may ask for this."""
        read = (self.stricter or self.read)(value)
        if self.most is not None and read > self.most:
            raise ValueError(f"{value!r} is more than {self._most_shown}")

    def value(self, value: Value) -> Any:
        """What holds of what was said."""
        read = self.read(value)
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
    def read(value: Value) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"expected a whole number, not {_kind(value)}")  # noqa: TRY004 - it is the value's
        if not least <= value <= most:
            raise ValueError(f"{value} is not within {least} and {most}")
        return int(value)

    return read


def delivery_limit(value: Value) -> int | None:
    """-1 stands for none."""
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
    """In milliseconds."""
    return interval_ms(text(value))


def some_age(value: Value) -> int:
    """An age above 0: nothing is younger than that."""
    if age(value) == 0:
        raise ValueError(f"{value!r} is no age")
    return age(value)


def _kind(value: Value) -> str:
    return f"{value!r} ({type(value).__name__})"


RULES = (  # in the order in which RabbitMQ looks at them, as far as it has them
    Rule("expires", whole_number(1, TIME_MS_MAX), limit=True, in_operator_policies=True),
    Rule("message-ttl", whole_number(0, TIME_MS_MAX), limit=True, in_operator_policies=True),
    Rule("dead-letter-exchange", text, is_only_known=True),
    Rule("dead-letter-routing-key", text, is_only_known=True),
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
        defaults={STREAM: 0},  # nobody waits for what one of its readers holds
        is_only_known=True,
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
WITHOUT_EFFECT = (  # a node alone has no replicas, and one kind of storage
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
ARGUMENTS = (TYPE, *RULES, *WITHOUT_EFFECT)
EXCHANGE_ARGUMENTS = {"x-message-deduplication", "x-cache-size", "x-cache-ttl", "x-deduplication-header"}


def queue_type(arguments: Table) -> str:
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


def not_for_type(argument: str, what: str, kind: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{argument}' for {what} of queue type rabbit_{kind}_queue")


def arguments_of(kind: str) -> list[str]:
    """The arguments that say what a queue of this type is."""
    return [rule.argument for rule in ARGUMENTS if kind in rule.types]


def check_exchange_arguments(what: str, arguments: Table) -> None:
    check_arguments(what, _of_exchange(arguments))


def exchange_rules_of(arguments: Table) -> Rules:
    return rules_of(_of_exchange(arguments))


def _of_exchange(arguments: Table) -> Table:
    """What counts for an exchange: only what says which messages to drop."""
    return {name: value for name, value in arguments.items() if name in EXCHANGE_ARGUMENTS}


def _conflicts(arguments: Table) -> list[tuple[str, str]]:
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
    """Those that hold; what is given must have been checked. Very many queues have the same arguments, or
    none, and share the rules that these make.
    """
    if not policy and not operator_policy:
        items = tuple(arguments.items())
        if all(isinstance(value, int | str) for _, value in items):
            return _remembered_rules(items)
    return _make_rules(arguments, policy, operator_policy)


@lru_cache(RULES_CACHED_MAX)
def _remembered_rules(arguments: tuple[tuple[str, Value], ...]) -> Rules:
    return _make_rules(dict(arguments), None, None)


def _make_rules(
    arguments: Table, policy: Mapping[str, Value] | None, operator_policy: Mapping[str, Value] | None
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
    return Rules(**values, tells_delivery_count=counts)


def _sources(
    rule: Rule,
    arguments: Table,
    policy: Mapping[str, Value] | None,
    operator_policy: Mapping[str, Value] | None,
) -> list[tuple[Mapping[str, Value], str]]:
    """In the order in which they come before each other."""
    found: list[tuple[Mapping[str, Value], str]] = [(arguments, rule.argument)]
    if rule.in_operator_policies and operator_policy:
        found.append((operator_policy, rule.name))
    if rule.in_policies and policy:
        found.append((policy, rule.name))
    return found
