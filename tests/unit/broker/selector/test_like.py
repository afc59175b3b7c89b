from __future__ import annotations

import pytest

from tests.unit.broker.selector.truth import of_headers


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("'abc'", "abc", True),
        ("'abc'", "abcd", False),
        ("'abc'", "ABC", False),
        ("''", "", True),
        ("''", "a", False),
        ("'%'", "", True),
        ("'%%'", "a\nb", True),
        ("'a%'", "abc", True),
        ("'a%'", "ba", False),
        ("'%c'", "abc", True),
        ("'%b%'", "abc", True),
        ("'a%c'", "ac", True),
        ("'ab%bc'", "abc", False),
        ("'x%ab%b'", "xab", False),
        ("'x%ab%b'", "xabb", True),
        ("'%_b%'", "\nb", True),
        ("'%._%'", "ab", False),
        ("'%._%'", "a.b", True),
        ("'a_c'", "abc", True),
        ("'a_c'", "ac", False),
        ("'_'", "\n", True),
        ("'_%'", "", False),
        ("'%_b_%'", "abc", True),
        ("'%_b_%'", "bab", False),
        ("'%a_b%c'", "xaabbac", True),
        ("'12%3'", "1299993", True),
        ("'.*'", "abc", False),
        ("'[ab]'", "a", False),
        (r"'\_%' ESCAPE '\'", "_foo", True),
        (r"'\_%' ESCAPE '\'", "foo", False),
        ("'100!%' ESCAPE '!'", "100%", True),
        ("'100!%' ESCAPE '!'", "100 ", False),
        ("'!!%' ESCAPE '!'", "!a", True),
        ("'!a' ESCAPE '!'", "a", True),
        ("'it''s'", "it's", True),
        ("'%%a' ESCAPE '%'", "%a", True),
    ],
)
def test_like_matches_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    assert of_headers(f"h LIKE {pattern}", {"h": text}) is expected
    assert of_headers(f"h NOT LIKE {pattern}", {"h": text}) is not expected


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "pattern", ["%a" * 200 + "%b%", "%a_" * 200 + "%b%", "%" + "a_" * 1000 + "b%", "%_" * 1000 + "b%"]
)
def test_like_takes_no_longer_for_patterns_that_make_others_try_again(pattern: str) -> None:
    assert of_headers(f"h LIKE '{pattern}'", {"h": "a" * 100_000}) is False
