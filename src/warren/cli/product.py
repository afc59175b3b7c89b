"""Which product a command speaks to: a WarrenMQ, or a RabbitMQ, whose API has less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from warren.cli.grammar import Failed, Remote
from warren.client.api import ApiError, Row

OURS, OTHER = "WarrenMQ", "RabbitMQ"
UNKNOWN_STATUSES = {400, 404, 405}
"""With these a RabbitMQ answers requests that its API does not have."""


def product_of(overview: Row) -> str:
    """Name and version. Old versions of RabbitMQ do not tell their name."""
    version = overview.get("product_version", overview.get("rabbitmq_version", ""))
    return f"{overview.get('product_name', OTHER)} {version}".strip()


@contextmanager
def ours_alone(remote: Remote) -> Iterator[None]:
    """For requests that only WarrenMQ's API has: if another product refuses one, say that."""
    try:
        yield
    except ApiError as error:
        if error.status in UNKNOWN_STATUSES:
            _check_ours(remote, error)
        raise


def _check_ours(remote: Remote, error: ApiError) -> None:
    try:
        product = product_of(remote.api.get("overview"))
    except ApiError:
        return  # what the user was refused before says more
    if not product.startswith(OURS):
        raise Failed(f"{remote.target.url.address} is a {product}: only {OURS} can do this") from error
