"""The methods of classes channel, confirm and tx. `Connection` opens and closes channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren.amqp.errors import PreconditionFailed
from warren.amqp.methods import (
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ConfirmSelectOk,
    Method,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warren.session import chores
from warren.session.channel import Channel
from warren.session.transaction import Transaction


def flow(channel: Channel, method: ChannelFlow) -> None:
    """The client wants deliveries to stop, or to go on."""
    channel.deliveries.active = method.active
    channel.wake_consumers()
    channel.reply(ChannelFlowOk(active=method.active))


def confirm_select(channel: Channel, method: ConfirmSelect) -> None:
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.confirms.on = True
    if not method.no_wait:
        channel.reply(ConfirmSelectOk())


def tx_select(channel: Channel, _method: TxSelect) -> None:
    if channel.confirms.on:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        limits = channel.connection.node.limits
        channel.transaction = Transaction(limits.transaction_messages_max, limits.transaction_bytes_max)
    channel.reply(TxSelectOk())


def the_transaction(channel: Channel) -> Transaction:
    transaction: Transaction | None = channel.transaction
    if transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return transaction


def tx_commit(channel: Channel, _method: TxCommit) -> None:
    chores.do(channel, the_transaction(channel).commit(channel), lambda: committed(channel))


def committed(channel: Channel) -> None:
    if channel.may_answer:
        channel.answer(TxCommitOk())


def tx_rollback(channel: Channel, _method: TxRollback) -> None:
    the_transaction(channel).rollback()
    channel.reply(TxRollbackOk())


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    ChannelFlow: flow,
    ConfirmSelect: confirm_select,
    TxSelect: tx_select,
    TxCommit: tx_commit,
    TxRollback: tx_rollback,
}
