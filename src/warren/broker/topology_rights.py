"""What a user has to be allowed for a change of the topology. Clients of AMQP and of the HTTP API are asked
for the same permissions; each function raises 403 if one is missing.
"""

from __future__ import annotations

from warren.broker.access import Access, Permission
from warren.broker.commands import BindingCommand, DeclareExchange, DeclareQueue
from warren.broker.declarations import DEAD_LETTER_EXCHANGE, check_not_default
from warren.broker.rules import ALTERNATE_EXCHANGE
from warren.broker.vhost import Vhost


def check_may_declare_queue(access: Access, vhost: Vhost, command: DeclareQueue) -> None:
    access.check(Permission.CONFIGURE, "queue", command.name)
    dead_letters = command.arguments.get(DEAD_LETTER_EXCHANGE)
    if isinstance(dead_letters, str) and command.name not in vhost.queues:
        # Dead-lettering moves messages, so the user must be allowed to read here and write there.
        access.check(Permission.READ, "queue", command.name)
        access.check(Permission.WRITE, "exchange", dead_letters)


def check_may_declare_exchange(access: Access, vhost: Vhost, command: DeclareExchange) -> None:
    access.check(Permission.CONFIGURE, "exchange", command.name)
    alternate = command.arguments.get(ALTERNATE_EXCHANGE)
    if isinstance(alternate, str) and command.name not in vhost.exchanges:
        # An alternate exchange moves messages, so the user must be allowed to read here and write there.
        access.check(Permission.READ, "exchange", command.name)
        access.check(Permission.WRITE, "exchange", alternate)


def check_may_bind(access: Access, vhost: Vhost, command: BindingCommand) -> None:
    """For binding and unbinding. Nobody may bind the default exchange."""
    access.check(Permission.WRITE, "queue" if command.to_queue else "exchange", command.destination)
    if not command.to_queue:
        check_not_default(command.destination)
    check_not_default(command.source)
    access.check(Permission.READ, "exchange", command.source)
    source = vhost.exchanges.get(command.source)
    if source is not None:
        access.check_topic(Permission.READ, source, command.routing_key)
