"""`warren trace`: switch the firehose of a vhost. While it is on, copies of all that is published and
delivered there go to the exchange amq.rabbitmq.trace, under publish.<exchange> and deliver.<queue>.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import urllib.error
import urllib.request
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

WAIT_SECONDS_MAX = 30.0
EXIT_ERROR = 2
URL = "http://guest:guest@127.0.0.1:15672"

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("trace", help="switch the firehose of a vhost", description=__doc__)
    parser.add_argument("switch", choices=["on", "off"])
    parser.add_argument("--vhost", default="/", help="the vhost (default: %(default)s)")
    parser.add_argument(
        "--url", default=URL, help="the broker's HTTP API, with an administrator (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        call(options.url, options.vhost, "GET")  # fails if there is no such vhost: PUT alone would make one
        call(options.url, options.vhost, "PUT", {"tracing": options.switch == "on"})
    except urllib.error.HTTPError as error:
        sys.stderr.write(f"warren trace: {reason_in(error)}\n")
        return EXIT_ERROR
    except (OSError, ValueError) as error:
        sys.stderr.write(f"warren trace: {error}\n")
        return EXIT_ERROR
    return 0


def call(url: str, vhost: str, method: str, content: dict[str, bool] | None = None) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("--url must be http://user:password@host:port")
    login = f"{unquote(parts.username or 'guest')}:{unquote(parts.password or 'guest')}"
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    request = urllib.request.Request(  # noqa: S310 - it is http or https
        f"{address}/api/vhosts/{quote(vhost, safe='')}",
        data=None if content is None else json.dumps(content).encode(),
        headers={"Authorization": "Basic " + base64.b64encode(login.encode()).decode()},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as answer:  # noqa: S310
        answer.read()


def reason_in(error: urllib.error.HTTPError) -> str:
    """The reason that the broker gave, or else the status."""
    try:
        return str(json.loads(error.read())["reason"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
