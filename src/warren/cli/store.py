"""`warren store`: look into a data directory, with or without a broker on it. Nothing in it is changed.

Exits with 0 if all is well, with 1 if `verify` finds damage, and with 2 if something could not be read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

from warren.cli.store_text import message_json, message_text, printable, queues_table, summary_json, totals
from warren.storage.data_files import DataFiles, FileKind, FileProblem, InspectError, QueueFiles
from warren.storage.inspect import read_messages, summarize
from warren.storage.inspect_stream import summarize_stream
from warren.storage.verify import verify

EXIT_DAMAGED, EXIT_ERROR, EXIT_INTERRUPTED = 1, 2, 130

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Work: TypeAlias = Callable[[argparse.Namespace], int]


def register(subparsers: Subparsers) -> None:
    store = subparsers.add_parser("store", help="look into a data directory", description=__doc__)
    commands = store.add_subparsers(metavar="COMMAND", required=True)
    _add_ls(commands)
    _add_cat(commands)
    _add_command(commands, "verify", "check every checksum, and that all files agree", _verify)


def _add_ls(commands: Subparsers) -> None:
    parser = _add_command(commands, "ls", "list the queues, and what is in them", _ls)
    parser.add_argument("--vhost", help="only the queues of this vhost")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_cat(commands: Subparsers) -> None:
    parser = _add_command(commands, "cat", "print the messages of a queue", _cat)
    add = parser.add_argument
    add("queue", metavar="QUEUE")
    add("--vhost", default="/", help="the queue's vhost (default: %(default)s)")
    add("--part", metavar="NAME", help="only the messages in this part of the queue, such as priority-3")
    add("--limit", type=_whole, metavar="N", help="print at most this many messages")
    add("--from", type=_whole, default=0, dest="first", metavar="POSITION", help="begin at this position")
    add("--acked", action="store_true", help="also messages that are done with, if they are still on disk")
    add("--json", action="store_true", help="print one JSON object a line")


def _add_command(commands: Subparsers, name: str, about: str, work: Work) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("directory", type=Path, metavar="DIR", help="the data directory")
    parser.set_defaults(run=lambda options: _run(work, options))
    return parser


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}")
    return int(text)


def _run(work: Work, options: argparse.Namespace) -> int:
    try:
        code = work(options)
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


def _open(options: argparse.Namespace) -> DataFiles:
    files = DataFiles(options.directory)
    if files.holder is not None:
        _say(f"process {files.holder} is using {options.directory}: the output is a snapshot")
    return files


# --- the commands ---


def _ls(options: argparse.Namespace) -> int:
    files = _open(options)
    summaries = [(summarize_stream if log.is_stream else summarize)(log) for log in files.logs(options.vhost)]
    if options.json:
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


def _cat(options: argparse.Namespace) -> int:
    logs = _logs(_open(options).queue(options.vhost, options.queue), options.part)
    problems: list[FileProblem] = []

    def tell(problem: FileProblem) -> None:
        if problem.kind is not FileKind.HARMLESS:
            _say(str(problem))
        problems.append(problem)

    messages = chain.from_iterable(
        read_messages(log, tell, first=options.first, with_acked=options.acked) for log in logs
    )
    write = message_json if options.json else message_text
    for message in islice(messages, options.limit):
        sys.stdout.write(write(message) + "\n")
    return EXIT_ERROR if any(problem.kind is FileKind.UNREADABLE for problem in problems) else 0


def _logs(queue: QueueFiles, part: str | None) -> list[QueueFiles]:
    logs = [queue, *queue.parts()]
    found = [log for log in logs if part in {None, log.part}]
    if not found:
        raise InspectError(f"queue '{queue.queue}' has no part '{part}'")
    return found


def _verify(options: argparse.Namespace) -> int:
    kinds = dict.fromkeys(FileKind, 0)

    def tell(problem: FileProblem) -> None:
        kinds[problem.kind] += 1
        sys.stdout.write(f"{problem.kind.value}: {printable(str(problem))}\n")

    checked = verify(_open(options), tell)
    found = ", ".join(f"{count} {kind.value}" for kind, count in kinds.items() if count)
    sys.stdout.write(
        f"{checked.queues} queues, {checked.segments} segments, {checked.records} records, "
        f"{checked.bytes} bytes checked: {found or 'all sound'}\n"
    )
    if kinds[FileKind.UNREADABLE]:
        _say(f"could not be read: {kinds[FileKind.UNREADABLE]} files")
        return EXIT_ERROR
    return EXIT_DAMAGED if kinds[FileKind.DAMAGE] else 0
