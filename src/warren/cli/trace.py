"""`warren trace`: switch the firehose of a vhost. While it is on, copies of all that is published and
delivered there go to the exchange amq.rabbitmq.trace, under publish.<exchange> and deliver.<queue>.
"""

from __future__ import annotations

import sys

import click

from warren.client.api import Api, ApiError, Unreachable
from warren.client.http_url import parse_http_url

EXIT_ERROR = 2
URL = "http://guest:guest@127.0.0.1:15672"


@click.command("trace", help=__doc__)
@click.argument("switch", type=click.Choice(["on", "off"]))
@click.option("--vhost", default="/", show_default=True, help="the vhost")
@click.option("--url", default=URL, show_default=True, help="the broker's HTTP API, with an administrator")
def trace(switch: str, vhost: str, url: str) -> int:
    try:
        with Api(parse_http_url(url)) as api:
            api.get("vhosts", vhost)  # fails if there is no such vhost: PUT alone would make one
            api.put("vhosts", vhost, content={"tracing": switch == "on"})
    except ValueError:
        return _fail("--url must be http://user:password@host:port")
    except (ApiError, Unreachable) as error:
        return _fail(str(error))
    return 0


def _fail(text: str) -> int:
    sys.stderr.write(f"warren trace: {text}\n")
    return EXIT_ERROR
