"""Options from a condition: they never leave out a message for which the condition is true."""

from __future__ import annotations

import pytest

from warren.pipeline import options_for


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("offset >= 10", {"minOffset": "10"}),
        ("10 < `offset` AND offset <= 20", {"minOffset": "11", "maxOffset": "20"}),
        ("offset = 7", {"minOffset": "7", "maxOffset": "7"}),
        ("offset between 3 and 9 and offset < 8", {"minOffset": "3", "maxOffset": "7"}),
        ("offset < 0", {"minOffset": "1", "maxOffset": "0"}),
        ("queue = 'orders' and (offset > 1 and (offset < 4))",
         {"subscribe": "orders", "minOffset": "2", "maxOffset": "3"}),
        ("queue in ('a', 'b') and vhost = 'v'", {"subscribe": "a,b", "vhost": "v"}),
        ("queue in ('a', 'b') and queue = 'b'", {"subscribe": "b"}),
        ("queue = 'a,b'", {"subscribePattern": "a,b"}),
        ("timestamp >= '1970-01-01T00:00:01Z'", {"startingTimestamp": "1000"}),
        ("timestamp > timestamp '1970-01-01 00:00:01'", {"startingTimestamp": "1001"}),
        ("TIMESTAMP'1970-01-02' > timestamp", {"endingTimestamp": "86400000"}),
        ("timestamp <= '1970-01-01T01:00:00.000500+01:00'", {"endingTimestamp": "1"}),
        ("offset >= 5 and headers['kind'] = 'o' and offset < size(x_death)", {"minOffset": "5"}),
    ],
)  # fmt: skip
def test_what_is_understood_becomes_options(condition: str, options: dict[str, str]) -> None:
    assert options_for(condition) == options


@pytest.mark.parametrize(
    "condition",
    [
        "offset > 5 or offset < 3",
        "x = 1 and offset > 5 or y",
        "not offset > 5",
        "not (offset > 5)",
        "offset not between 1 and 5",
        "offset != 5",
        "offset <=> 5",
        "t.offset > 5",
        "offset > 5 is null",
        "offset > 5.5",
        "offset > -5",
        "offset > length",
        "timestamp > 'soon'",
        "case when x then y and offset > 5 and z end",
        "(case when x then y and offset > 5 and z end)",
        "routing_key = 'it\\'s and offset > 5 and x'",
        'routing_key = "a\\" and offset > 5 and x"',
        "routing_key = 'a' -- and offset > 5",
        "exists(x_death, d -> d.count > 1 and offset > 5 and d.count < 3)",
        "x between 1 and offset",
        "queue != 'a'",
        "queue in ('a', routing_key)",
        "queue in (select 'a')",
        "vhost in ('a', 'b')",
        "",
    ],
)
def test_what_may_be_true_of_any_message_leaves_out_none(condition: str) -> None:
    assert options_for(condition) == {}
