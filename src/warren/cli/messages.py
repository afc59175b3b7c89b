"""Commands on the messages of a queue: publish, get, peek, move, copy, delete, and pausing deliveries."""

from __future__ import annotations

from collections.abc import Callable

import click

from warren.cli.grammar import Failed, Remote, completing, over_http
from warren.cli.product import ours_alone
from warren.cli.publishing import Pairs, publish_message, publishing
from warren.cli.queues import queue_argument
from warren.client.api import Row

COLUMNS = (
    "routing_key",
    "exchange",
    "payload_bytes",
    "payload",
    "payload_encoding",
    "properties",
    "redelivered",
)
ACK_MODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
COUNT = click.IntRange(min=1)
target_argument = click.argument("to", metavar="TO", shell_complete=completing("queues"))
JOBS, JOB_WAIT_SECONDS = "message-jobs", "10"
RUNNING, DONE = "running", "done"


@click.command("publish")
@over_http
@click.option(
    "--exchange",
    default="",
    metavar="NAME",
    help="the exchange (the default exchange)",
    shell_complete=completing("exchanges"),
)
@publishing
def publish(
    remote: Remote, routing_key: str, payload: str | None, *, exchange: str, properties: Pairs, headers: Pairs
) -> None:
    """Publish a message. Without a payload it is read from the standard input."""
    publish_message(remote, exchange, routing_key, payload, properties=properties, headers=headers)


@click.command("get")
@over_http
@queue_argument
@click.option("--count", type=COUNT, default=1, show_default=True, help="how many messages")
@click.option(
    "--ackmode",
    type=click.Choice(ACK_MODES),
    default=ACK_MODES[0],
    show_default=True,
    help="what happens to them: put back, acked, or rejected",
)
@click.option("--encoding", type=click.Choice(["auto", "base64"]), default="auto", show_default=True)
@click.option("--truncate", type=COUNT, metavar="BYTES", help="cut payloads that are longer")
def get(remote: Remote, queue: str, *, count: int, ackmode: str, encoding: str, truncate: int | None) -> None:
    """Get messages of a queue. They are put back, marked as redelivered, unless --ackmode says otherwise."""
    content: Row = {"count": count, "ackmode": ackmode, "encoding": encoding}
    if truncate is not None:
        content["truncate"] = truncate
    answer = remote.api.post("queues", remote.vhost, queue, "get", content=content)
    remote.printer.table([answer], COLUMNS)


@click.command("peek")
@over_http
@queue_argument
@click.option("--count", type=COUNT, default=1, show_default=True, help="how many messages")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="how many to pass over first")
@click.option("--selector", metavar="CONDITION", help="only messages for which this holds")
def peek(remote: Remote, queue: str, *, count: int, offset: int, selector: str | None) -> None:
    """Look at messages of a queue without consuming them."""
    query = {"count": str(count), "offset": str(offset)} | (
        {} if selector is None else {"selector": selector}
    )
    with ours_alone(remote):
        answer = remote.api.get("queues", remote.vhost, queue, "messages", query=query)
    remote.printer.table([answer], COLUMNS)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which messages of a queue are meant."""
    command = click.option("--selector", metavar="CONDITION", help="only messages for which this holds")(
        command
    )
    return click.option("--count", type=COUNT, help="at most so many (all)")(command)


@click.command("move")
@over_http
@queue_argument
@target_argument
@selecting
def move(remote: Remote, queue: str, to: str, *, count: int | None, selector: str | None) -> None:
    """Move messages to another queue of the vhost."""
    _act(remote, queue, "move", {"to": to, "count": count, "selector": selector})


@click.command("copy")
@over_http
@queue_argument
@target_argument
@selecting
def copy(remote: Remote, queue: str, to: str, *, count: int | None, selector: str | None) -> None:
    """Copy messages to another queue of the vhost."""
    _act(remote, queue, "copy", {"to": to, "count": count, "selector": selector})


@click.command("delete-messages")
@over_http
@queue_argument
@selecting
def delete_messages(remote: Remote, queue: str, *, count: int | None, selector: str | None) -> None:
    """Delete messages of a queue: those that --selector chooses, the first so many, or all."""
    _act(remote, queue, "delete-messages", {"count": count, "selector": selector})


def _act(remote: Remote, queue: str, action: str, asked: Row) -> None:
    """Ask for a job on the messages, and wait until it has ended. Ctrl-C ends the job; what is done stays
    done.
    """
    content = {name: value for name, value in asked.items() if value is not None}
    with ours_alone(remote):
        job = remote.api.post("queues", remote.vhost, queue, action, content=content)
    try:
        while job["state"] == RUNNING:
            job = remote.api.get(JOBS, str(job["id"]), query={"wait": JOB_WAIT_SECONDS})
    except KeyboardInterrupt:
        remote.api.delete(JOBS, str(job["id"]))
        raise
    remote.printer.record({name: value for name, value in job.items() if value not in {None, ""}})
    if job["state"] != DONE:
        raise Failed(f"{job['done']} messages are done, then it ended: {job['reason'] or job['state']}")


@click.command("pause")
@over_http
@queue_argument
def pause(remote: Remote, queue: str) -> None:
    """Deliver no more messages of a queue until `warren resume`."""
    with ours_alone(remote):
        remote.api.put("queues", remote.vhost, queue, "pause", content={})
    remote.printer.said(f"queue '{queue}' paused")


@click.command("resume")
@over_http
@queue_argument
def resume(remote: Remote, queue: str) -> None:
    """Deliver the messages of a queue again."""
    with ours_alone(remote):
        remote.api.put("queues", remote.vhost, queue, "resume", content={})
    remote.printer.said(f"queue '{queue}' delivers again")
