"""basic.deliver, which the consumer decodes by hand, against the general decoder of methods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.methods import BasicDeliver
from warren.amqp.table import encode_name
from warren.client.errors import ClientError
from warren.pipeline.consumer import read_envelope

NAMES = st.text(max_size=60).filter(lambda name: len(name.encode()) <= 255)


@given(
    consumer_tag=NAMES,
    exchange=NAMES,
    routing_key=NAMES,
    delivery_tag=st.integers(0, 2**64 - 1),
    redelivered=st.booleans(),
)
def test_envelope_has_what_the_delivery_says(
    *, consumer_tag: str, exchange: str, routing_key: str, delivery_tag: int, redelivered: bool
) -> None:
    method = BasicDeliver(
        consumer_tag=consumer_tag,
        delivery_tag=delivery_tag,
        redelivered=redelivered,
        exchange=exchange,
        routing_key=routing_key,
    )
    assert read_envelope(method.encode()) == (
        consumer_tag.encode(),
        delivery_tag,
        encode_name(exchange),
        encode_name(routing_key),
    )


def test_delivery_that_is_cut_or_too_long_is_an_error() -> None:
    method = BasicDeliver(consumer_tag="0", delivery_tag=1, redelivered=False, exchange="e", routing_key="k")
    whole = method.encode()
    for payload in [*(whole[:size] for size in range(4, len(whole))), whole + b"\0"]:
        with pytest.raises(ClientError, match=r"basic\.deliver"):
            read_envelope(payload)
