from __future__ import annotations

import pytest

from warren.server.address import Address, addresses
from warren.server.config_error import ConfigError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("127.0.0.1:5672", (Address("127.0.0.1", 5672),)),
        ("[::1]:5672", (Address("::1", 5672),)),
        ("localhost:0, [::]:65535", (Address("localhost", 0), Address("::", 65_535))),
        (["0.0.0.0:1"], (Address("0.0.0.0", 1),)),
        ([{"address": "[::1]:1"}], (Address("::1", 1),)),
        ([{"address": "a:1", "proxy_protocol": True}], (Address("a", 1, proxy_protocol=True),)),
        ((Address("a", 1),), (Address("a", 1),)),
        ([], ()),
    ],
)
def test_addresses_may_be_texts_tables_or_one_text_with_commas(
    value: object, expected: tuple[Address, ...]
) -> None:
    assert addresses("listeners", value) == expected


@pytest.mark.parametrize(
    "value",
    [
        5672,
        {"address": "a:1"},
        "5672",
        ":5672",
        "::1:5672",
        "host:",
        "host:port",
        "host:65536",
        "host:-1",
        ["a:1", ""],
        [5672],
        [{"address": 5672}],
        [{"proxy_protocol": True}],
        [{"address": "a:1", "proxy_protocol": "yes"}],
        [{"address": "a:1", "port": 2}],
    ],
)
def test_what_is_no_address_is_an_error_that_names_the_setting(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^listeners"):
        addresses("listeners", value)


def test_ipv6_addresses_are_written_in_brackets() -> None:
    assert [str(Address("::1", 5672)), str(Address("127.0.0.1", 1))] == ["[::1]:5672", "127.0.0.1:1"]
