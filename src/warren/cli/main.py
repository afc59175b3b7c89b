"""The command `warren`: finds the subcommand and runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from warren.cli import config, perf, pipeline, serve, store, trace
from warren.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="warren", description="WarrenMQ, a message broker.")
    parser.add_argument("--version", action="version", version=f"warren {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    serve.register(subparsers)
    perf.register(subparsers)
    store.register(subparsers)
    trace.register(subparsers)
    pipeline.register(subparsers)
    config.register(subparsers)
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["pipeline"]:  # each of its jobs has its own options, and is imported only if it is named
        return pipeline.main(words[1:])
    options = parser.parse_args(words)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
