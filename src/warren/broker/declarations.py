"""Checks whether a queue or an exchange can be declared or deleted as a command says. Permissions are not
checked here, but by the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from warren.amqp.errors import AccessRefused, CommandInvalid, PreconditionFailed
from warren.amqp.table import Table, Value, type_name
from warren.broker.commands import DeclareExchange, DeclareQueue, DeleteExchange, DeleteQueue
from warren.broker.exchange.exchange import INNER_TYPE, Exchange, Router
from warren.broker.exchange.federation_upstream import MAX_HOPS
from warren.broker.queue import Queue
from warren.broker.rules import (
    ALTERNATE_EXCHANGE,
    CLASSIC,
    TYPE,
    arguments_of,
    check_arguments,
    check_exchange_arguments,
    check_readable,
    queue_type,
)
from warren.broker.vhost import Vhost, locked

RESERVED = "amq."
DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
COMPARED_ARGUMENTS = (ALTERNATE_EXCHANGE, INNER_TYPE, MAX_HOPS)


# --- queues ---


def check_queue(vhost: Vhost, command: DeclareQueue) -> None:
    """Raise unless the queue can be declared, or exists just as the command describes it."""
    existing = vhost.queues.get(command.name) or vhost.internal_queues.get(command.name)
    if existing is not None:
        check_same_queue(existing, command)
        return
    if not command.by_broker:
        check_new_name("queue", command.name)
    what = f"queue '{command.name}' in vhost '{vhost.name}'"
    vhost.check_queue_limit(command.name)
    named_exchange(command.arguments, DEAD_LETTER_EXCHANGE, what)
    check_arguments(what, command.arguments)
    if queue_type(command.arguments) != CLASSIC:
        check_is_to_stay(what, command)


def with_default_type(vhost: Vhost, command: DeclareQueue) -> DeclareQueue:
    """The same queue with the vhost's default type, as in RabbitMQ: unless it has a type already, or could
    not be of the default type.
    """
    default = vhost.metadata.default_queue_type
    if default is None or command.by_broker or TYPE.argument in command.arguments:
        return command
    is_to_stay = command.durable and not command.auto_delete and command.owner is None
    if default != CLASSIC and not is_to_stay:
        return command
    return replace(command, arguments={**command.arguments, TYPE.argument: default})


def check_recorded(command: DeclareQueue) -> None:
    """406 if an argument of a queue that was declared before makes no sense to this version: it is not
    followed.
    """
    check_readable(f"queue '{command.name}' in vhost '{command.vhost}'", command.arguments)


def check_is_to_stay(what: str, command: DeclareQueue) -> None:
    """Raise 406 unless the queue is durable and outlives its users, as a quorum queue and a stream must."""
    if command.auto_delete:
        raise PreconditionFailed(f"invalid property 'auto-delete' for {what}")
    if command.owner is not None:
        raise PreconditionFailed(f"invalid property 'exclusive-owner' for {what}")
    if not command.durable:
        raise PreconditionFailed(f"invalid property 'non-durable' for {what}")


def check_same_queue(queue: Queue, command: DeclareQueue) -> None:
    if queue.owner != command.owner:
        raise locked(queue)
    check_equal(queue.what, "durable", is_durable(command), queue.durable)
    check_equal(queue.what, "auto_delete", command.auto_delete, queue.auto_delete)
    kind = queue_type(queue.arguments)
    for argument in arguments_of(kind):
        if argument != TYPE.argument or queue_type(command.arguments) != kind:
            check_equal_argument(queue.what, argument, command.arguments, queue.arguments)


def is_durable(command: DeclareQueue) -> bool:
    """Whether the queue is to be durable. An exclusive queue never is: it goes with its connection."""
    return command.durable and command.owner is None


def check_queue_goes(queue: Queue, command: DeleteQueue) -> None:
    """Raise 406 if the command requires an unused or an empty queue, and this one is not."""
    if command.if_unused and queue.is_consumed:
        raise PreconditionFailed(f"{queue.what} in use")
    if command.if_empty and queue.message_count:
        raise PreconditionFailed(f"{queue.what} not empty")


# --- exchanges ---


def check_exchange_type(types: Mapping[str, type[Router]], name: str) -> None:
    if name not in types:
        raise CommandInvalid(f"unknown exchange type '{name}'")


def check_exchange(vhost: Vhost, types: Mapping[str, type[Router]], command: DeclareExchange) -> None:
    """Raise unless the exchange can be declared, or exists just as the command describes it."""
    check_exchange_type(types, command.type)
    check_not_default(command.name)
    what = f"exchange '{command.name}' in vhost '{vhost.name}'"
    existing = vhost.exchanges.get(command.name)
    if existing is not None:
        check_same_exchange(what, existing, command)
        return
    check_new_name("exchange", command.name)
    named_exchange(command.arguments, ALTERNATE_EXCHANGE, what)
    check_exchange_arguments(what, command.arguments)


def check_same_exchange(what: str, exchange: Exchange, command: DeclareExchange) -> None:
    check_equal(what, "type", command.type, exchange.type)
    check_equal(what, "durable", command.durable, exchange.durable)
    check_equal(what, "auto_delete", command.auto_delete, exchange.auto_delete)
    check_equal(what, "internal", command.internal, exchange.internal)
    for argument in COMPARED_ARGUMENTS:
        check_equal_argument(what, argument, command.arguments, exchange.arguments)


def check_exchange_goes(vhost: Vhost, command: DeleteExchange) -> None:
    """Raise 403 for an exchange that every vhost has, 406 if the command requires an unused one."""
    check_not_default(command.name)
    if command.name.startswith(RESERVED):
        raise AccessRefused(
            f"deletion of system exchange '{command.name}' in vhost '{vhost.name}' not allowed"
        )
    exchange = vhost.exchanges.get(command.name)
    if exchange is not None and command.if_unused and exchange.bindings:
        raise PreconditionFailed(f"exchange '{command.name}' in vhost '{vhost.name}' in use")


def check_not_default(exchange: str) -> None:
    if not exchange:
        raise AccessRefused("operation not permitted on the default exchange")


# --- names and arguments ---


def check_new_name(kind: str, name: str) -> None:
    if name.startswith(RESERVED):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if not name.isprintable():
        raise PreconditionFailed(f"{kind} name {name!r} has characters that cannot be printed")


def named_exchange(arguments: Table, argument: str, what: str) -> str | None:
    """The name of the exchange that an argument gives; None without that argument."""
    if argument not in arguments:
        return None
    name = arguments[argument]
    if not isinstance(name, str):
        raise PreconditionFailed(f"invalid type '{type_name(name)}' for arg '{argument}' in {what}")
    return name


def check_equal(what: str, argument: str, received: bool | str, current: bool | str) -> None:
    """Raise 406 unless a redeclaration gives the value that the queue or exchange has."""
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{argument}' for {what}: "
            f"received '{_plain(received)}' but current is '{_plain(current)}'"
        )


def check_equal_argument(what: str, argument: str, received: Table, current: Table) -> None:
    """The same for an argument, which both must have or lack. Whole numbers are equal whatever their width;
    but 1, 1.0 and true are three values.
    """
    ours, theirs = current.get(argument), received.get(argument)
    if (argument in current) == (argument in received):
        if ours == theirs and _number_class(ours) is _number_class(theirs):
            return
        told = f"received '{_plain(theirs)}' but current is '{_plain(ours)}'"
    else:
        told = f"received {_described(theirs)} but current is {_described(ours)}"
    raise PreconditionFailed(f"inequivalent arg '{argument}' for {what}: {told}")


def _number_class(value: Value) -> type | None:
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _described(value: Value) -> str:
    if value is None:
        return "none"
    return f"the value '{_plain(value)}' of type '{type_name(value)}'"
