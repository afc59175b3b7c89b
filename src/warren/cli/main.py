"""The command `warren`: finds the subcommand and turns its failures into one line and an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from warren.cli import perf, pipeline, serve, store
from warren.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="warren", description="WarrenMQ, a message broker.")
    parser.add_argument("--version", action="version", version=f"warren {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    serve.register(subparsers)
    perf.register(subparsers)
    store.register(subparsers)
    pipeline.register(subparsers)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
