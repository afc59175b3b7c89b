"""`warren store`: look into a data directory, with or without a broker on it. Nothing in it is changed.

Exits with 0 if all is well, with 1 if `verify` finds damage, and with 2 if something could not be read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

import click

from warren.cli.numbers import Whole
from warren.cli.store_text import message_json, message_text, queues_table, summary_json, totals
from warren.cli.text import printable
from warren.storage.data_files import DataFiles, FileKind, FileProblem, InspectError, QueueFiles
from warren.storage.inspect import read_messages, summarize
from warren.storage.inspect_stream import summarize_stream
from warren.storage.verify import verify as verify_files

EXIT_DAMAGED, EXIT_ERROR, EXIT_INTERRUPTED = 1, 2, 130
WHOLE = Whole()

Work: TypeAlias = Callable[[], int]
directory_argument = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")


@click.group("store", help=__doc__, no_args_is_help=True)
def store() -> None:
    pass


@store.command("ls")
@directory_argument
@click.option("--vhost", metavar="NAME", help="only the queues of this vhost")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def ls(directory: Path, vhost: str | None, *, as_json: bool) -> int:
    """List the queues, and what is in them."""
    return _run(lambda: _ls(_open(directory), vhost, as_json=as_json))


@store.command("cat")
@directory_argument
@click.argument("queue", metavar="QUEUE")
@click.option("--vhost", default="/", show_default=True, help="the queue's vhost")
@click.option(
    "--part", metavar="NAME", help="only the messages in this part of the queue, such as priority-3"
)
@click.option("--limit", type=WHOLE, metavar="N", help="print at most this many messages")
@click.option("--from", "first", type=WHOLE, default=0, metavar="POSITION", help="begin at this position")
@click.option("--acked", is_flag=True, help="also messages that are done with, if they are still on disk")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a line")
def cat(
    directory: Path,
    queue: str,
    *,
    vhost: str,
    part: str | None,
    limit: int | None,
    first: int,
    acked: bool,
    as_json: bool,
) -> int:
    """Print the messages of a queue."""

    def work() -> int:
        logs = _logs(_open(directory).queue(vhost, queue), part)
        return _cat(logs, limit=limit, first=first, acked=acked, as_json=as_json)

    return _run(work)


@store.command("verify")
@directory_argument
def verify(directory: Path) -> int:
    """Check every checksum, and that all files agree."""
    return _run(lambda: _verify(_open(directory)))


def _run(work: Work) -> int:
    try:
        code = work()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone: throw away the rest, also what Python still has buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (InspectError, OSError) as error:
        _say(str(error))
        return EXIT_ERROR
    return code


def _say(text: str) -> None:
    sys.stderr.write(f"warren store: {text}\n")


def _open(directory: Path) -> DataFiles:
    files = DataFiles(directory)
    if files.holder is not None:
        _say(f"process {files.holder} is using {directory}: the output is a snapshot")
    return files


# --- the commands ---


def _ls(files: DataFiles, vhost: str | None, *, as_json: bool) -> int:
    summaries = [(summarize_stream if log.is_stream else summarize)(log) for log in files.logs(vhost)]
    if as_json:
        content = {"queues": [summary_json(summary) for summary in summaries], "totals": totals(summaries)}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in queues_table(summaries, now_ms=int(time.time() * 1000)))
    return _tell_problems([problem for summary in summaries for problem in summary.problems])


def _tell_problems(problems: list[FileProblem]) -> int:
    """Print each problem of reading. Of damage only say that there is some: `verify` tells more."""
    unreadable = [problem for problem in problems if problem.kind is FileKind.UNREADABLE]
    for problem in unreadable:
        _say(str(problem))
    if any(problem.kind is FileKind.DAMAGE for problem in problems):
        _say("something is damaged: see `warren store verify`")
    return EXIT_ERROR if unreadable else 0


def _cat(logs: list[QueueFiles], *, limit: int | None, first: int, acked: bool, as_json: bool) -> int:
    problems: list[FileProblem] = []

    def tell(problem: FileProblem) -> None:
        if problem.kind is not FileKind.HARMLESS:
            _say(str(problem))
        problems.append(problem)

    messages = chain.from_iterable(read_messages(log, tell, first=first, with_acked=acked) for log in logs)
    write = message_json if as_json else message_text
    for message in islice(messages, limit):
        sys.stdout.write(write(message) + "\n")
    return EXIT_ERROR if any(problem.kind is FileKind.UNREADABLE for problem in problems) else 0


def _logs(queue: QueueFiles, part: str | None) -> list[QueueFiles]:
    logs = [queue, *queue.parts()]
    found = [log for log in logs if part in {None, log.part}]
    if not found:
        raise InspectError(f"queue '{queue.queue}' has no part '{part}'")
    return found


def _verify(files: DataFiles) -> int:
    kinds = dict.fromkeys(FileKind, 0)

    def tell(problem: FileProblem) -> None:
        kinds[problem.kind] += 1
        sys.stdout.write(f"{problem.kind.value}: {printable(str(problem))}\n")

    checked = verify_files(files, tell)
    found = ", ".join(f"{count} {kind.value}" for kind, count in kinds.items() if count)
    sys.stdout.write(
        f"{checked.queues} queues, {checked.segments} segments, {checked.records} records, "
        f"{checked.bytes} bytes checked: {found or 'all sound'}\n"
    )
    if kinds[FileKind.UNREADABLE]:
        _say(f"could not be read: {kinds[FileKind.UNREADABLE]} files")
        return EXIT_ERROR
    return EXIT_DAMAGED if kinds[FileKind.DAMAGE] else 0
