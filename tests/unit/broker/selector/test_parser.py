from __future__ import annotations

import pytest

from tests.unit.broker.selector.truth import HEADERS, Truth, of_headers
from warren.amqp import table as t
from warren.amqp.properties import BasicProperties
from warren.broker.selector import SelectorError, compile_selector
from warren.broker.selector.lexer import TEXT_LENGTH_MAX, TOKENS_MAX
from warren.broker.selector.parser import DEPTH_MAX


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOT yes", False),
        ("NOT no", True),
        ("NOT missing", None),
        ("NOT NOT yes", True),
        ("NOT NOT NOT yes", False),
        ("NOT size = 8", True),
        ("NOT no AND no", False),
        ("NOT (no AND no)", True),
        ("yes OR no AND no", True),
        ("(yes OR no) AND no", False),
        ("no AND no OR yes", True),
        ("no = no OR missing", True),
        ("((yes))", True),
    ],
)
def test_not_binds_before_and_and_and_before_or(text: str, expected: Truth) -> None:
    assert of_headers(text) is expected


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("12", 12),
        ("007", 7),
        ("0x1F", 31),
        ("0Xff", 255),
        ("18446744073709551615", 2**64 - 1),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000),
        ("1E-3", 0.001),
        ("1.5e+3", 1500),
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("''", ""),
        ("'\"'", '"'),
        ("'größe 🐇'", "größe 🐇"),
        ("'a\nb'", "a\nb"),
        ("TRUE", True),
        ("false", False),
    ],
)
def test_literal_is_read_as_its_value(literal: str, value: t.Value) -> None:
    assert of_headers(f"h = {literal}", {"h": value}) is True


@pytest.mark.parametrize(
    "name",
    [
        *(
            "a",
            "A1",
            "_a",
            "$a",
            "a.b",
            "a_b",
            "a$b",
            "x-death",
            "x-first-death-queue",
            "a-1",
            "größe",
            "\u0131s",  # in capitals: IS
            "a.",
            "andy",
        ),
        *('"any text"', '"x-my-header"', '"AND"', '"say ""hi"""', '"1"', '"it\'s"', '"-"'),
    ],
)
def test_name_is_bare_or_quoted(name: str) -> None:
    header = name[1:-1].replace('""', '"') if name.startswith('"') else name
    assert of_headers(f"{name}=1", {header: 1}) is True
    assert compile_selector(f"{name} = 1").names == {header}


def test_names_are_case_sensitive_and_keywords_are_not() -> None:
    assert of_headers("Size iS NuLl And Not size Is not nuLL Or size beTween 1 aNd 8 and size in (7)") is True


def test_dash_with_a_space_beside_it_is_a_minus() -> None:
    assert of_headers("a-b = 'dashed' AND a - b = 7 AND a -b = 7 AND a- b = 7") is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unexpected end at 0: expected a value"),
        ("a =", "unexpected end at 3: expected a value"),
        ("a > 3 AND )", "unexpected ')' at 10: expected a value"),
        ("a = = 3", "unexpected '=' at 4: expected a value"),
        ("a = 1 = 1", "unexpected '=' at 6: expected an operator or the end"),
        ("a = 1 b", "unexpected 'b' at 6: expected an operator or the end"),
        ("(a = 1", "unexpected end at 6: expected an operator or ')'"),
        ("(a = 1 b", "unexpected 'b' at 7: expected an operator or ')'"),
        ("a = 1)", "unexpected ')' at 5: expected an operator or the end"),
        ("a AND", "unexpected end at 5: expected a value"),
        ("like", "unexpected 'LIKE' at 0: expected a value"),
        ("a = NULL", "unexpected 'NULL' at 4: expected a value; NULL is only for IS NULL"),
        ("a IS 3", "unexpected '3' at 5: expected 'NULL'"),
        ("a IS NOT", "unexpected end at 8: expected 'NULL'"),
        ("a NOT = 3", "unexpected '=' at 6: expected BETWEEN, IN or LIKE"),
        ("a BETWEEN 1 OR 2", "unexpected 'OR' at 12: expected 'AND'"),
        ("a IN 1", "unexpected '1' at 5: expected '('"),
        ("a IN ()", "unexpected ')' at 6: expected a string, a number, TRUE or FALSE"),
        ("a IN (b)", "unexpected 'b' at 6: expected a string, a number, TRUE or FALSE"),
        ("a IN (1 2)", "unexpected '2' at 8: expected ',' or ')'"),
        ("a IN (-'x')", "unexpected \"'x'\" at 7: expected a number"),
        ("a LIKE b", "unexpected 'b' at 7: expected a string"),
        ("a LIKE 'x' ESCAPE 3", "unexpected '3' at 18: expected a string"),
        ("a LIKE 'x' ESCAPE 'ab'", "malformed escape 'ab' at 18: expected one character"),
        ("a LIKE 'x!' ESCAPE '!'", "malformed pattern at 7: it ends with its escape character"),
        ("a = 'x", "the string that starts at 4 has no closing quote"),
        ("a = 'x''", "the string that starts at 4 has no closing quote"),
        ('a = 1 AND "x', "the name that starts at 10 has no closing quote"),
        ("a # b", "unexpected character '#' at 2"),
        ("a = 3x", "malformed number '3x' at 4"),
        ("a = 1.2.3", "malformed number '1.2.' at 4"),
        ("a = 0x", "malformed number '0x' at 4"),
        ("a = 1e999", "number '1e999' at 4 is too large"),
        (
            "a = 18446744073709551616",
            "number '18446744073709551616' at 4 is too large: it has more than 64 bits",
        ),
        ("a = 1 OR 3", "expected a condition at 9, not a number"),
        ("'x'", "expected a condition at 0, not a string"),
        ("a + 1", "expected a condition at 0, not a number"),
        ("NOT -a", "expected a condition at 4, not a number"),
        ("(3) AND a", "expected a condition at 0, not a number"),
        ("a = 1 AND amqp.colour = 1", "unknown property 'amqp.colour' at 10"),
        ("amqp.headers IS NULL", "unknown property 'amqp.headers' at 0"),
        ("a = 1 \n\n b", "unexpected 'b' at 9: expected an operator or the end"),
        ("a = '\n' 'b\n'", "unexpected \"'b\\n'\" at 8: expected an operator or the end"),
        (f"a {'b' * 100}", f"unexpected '{'b' * 30}…' at 2: expected an operator or the end"),
    ],
)
def test_error_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as raised:
        compile_selector(text)
    assert str(raised.value) == message


def test_text_is_bounded() -> None:
    assert compile_selector("a = '".ljust(TEXT_LENGTH_MAX - 1, "x") + "'")
    with pytest.raises(SelectorError, match=f"too long: {TEXT_LENGTH_MAX + 1} characters, at most"):
        compile_selector("a = '".ljust(TEXT_LENGTH_MAX, "x") + "'")


def test_tokens_are_bounded() -> None:
    longest = "NOT a" + " + a" * ((TOKENS_MAX - 4) // 2) + " < 0"
    assert compile_selector(longest).matches(BasicProperties(headers=HEADERS))
    with pytest.raises(SelectorError, match=rf"too long at \d+: it has more than {TOKENS_MAX} tokens"):
        compile_selector(f"NOT {longest}")


def test_depth_is_bounded_whatever_a_level_holds() -> None:
    deepest = "size = 7"
    for _level in range(DEPTH_MAX - 1):  # and one for the negation that `truth` asks for
        deepest = f"no OR yes AND NOT 1 + 2 * -({deepest}) = 1"
    assert of_headers(deepest) is None
    with pytest.raises(SelectorError, match=f"parentheses at 20 are nested more than {DEPTH_MAX} deep"):
        compile_selector("(" * (DEPTH_MAX + 1))


def test_parentheses_beside_each_other_are_no_depth() -> None:
    assert of_headers(" AND ".join(["(size = 7)"] * (DEPTH_MAX + 1))) is True


@pytest.mark.parametrize("repeated", ["NOT ", "- ", "NOT NOT "])
def test_signs_and_nots_in_a_row_are_no_depth(repeated: str) -> None:
    test = "1 = 1" if "NOT" in repeated else "-1 < 0 OR 1 > 0"
    assert of_headers(repeated * 400 + test) is True
