from __future__ import annotations

import pytest

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Int8, Table, Value
from warren.broker.routing_headers import take


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        ({"CC": ["a", "b"]}, ["a", "b"]),
        ({"BCC": ["a"], "CC": ["b"]}, ["b", "a"]),
        ({"CC": []}, []),
        ({"cc": ["a"]}, []),
        ({"CC": [1, "a", None, ["b"], b"\xff", {"c": "d"}]}, ["a"]),
    ],
)
def test_cc_and_bcc_are_further_keys(headers: Table, keys: list[str]) -> None:
    assert take(BasicProperties(headers=headers).encode())[0] == keys


def test_bcc_does_not_travel_on_and_the_rest_does() -> None:
    sent = BasicProperties(
        content_type="t", headers={"n": Int8(1), "BCC": ["a"], "CC": ["b"]}, delivery_mode=2, timestamp=5
    )
    _, delivered = take(sent.encode())
    assert decode_properties(delivered) == BasicProperties(
        content_type="t", headers={"n": Int8(1), "CC": ["b"]}, delivery_mode=2, timestamp=5
    )


def test_properties_without_bcc_are_left_byte_for_byte() -> None:
    sent = BasicProperties(headers={"CC": ["b"]}).encode()
    assert take(sent)[1] is sent


@pytest.mark.parametrize(
    ("value", "kind"), [("a", "longstr"), (1, "signedint"), (None, "void"), ({"a": "b"}, "table")]
)
@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_anything_but_an_array_is_refused(name: str, value: Value, kind: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        take(BasicProperties(headers={name: value}).encode())
    assert str(caught.value) == f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
