from __future__ import annotations

import pytest

from warren.broker.rate import AT_ONCE_BYTES_MIN, MESSAGE_BYTES_MIN, Allowance, Rate, allowance


def test_what_was_saved_up_is_free_and_the_rest_has_to_be_waited_for() -> None:
    rate = Rate(10, now=0.0)
    assert rate.charge(10, 0.0) == 0.0
    assert rate.charge(5, 0.0) == pytest.approx(0.5)
    assert rate.charge(10, 0.0) == pytest.approx(1.5)


def test_debt_is_paid_by_time() -> None:
    rate = Rate(10, now=0.0)
    rate.charge(30, 0.0)
    assert rate.charge(0, 1.0) == pytest.approx(1.0)
    assert rate.charge(0, 2.0) == 0.0
    assert rate.charge(1, 2.0) == pytest.approx(0.1)


def test_no_more_than_a_second_is_saved_up() -> None:
    rate = Rate(10, now=0.0)
    assert rate.charge(11, 1_000.0) == pytest.approx(0.1)


def test_in_the_long_run_nobody_gets_more_than_the_rate() -> None:
    rate, now, taken = Rate(100, now=0.0), 0.0, 0
    for amount in (1, 500, 3, 250, 7, 99) * 100:
        now += rate.charge(amount, now)
        taken += amount
    assert taken <= 100 * (now + 1)
    assert taken >= 100 * now


def test_the_longer_wait_of_messages_and_bytes_holds() -> None:
    assert Allowance(10, 1_000, 0.0).charge(20, 1_500, 0.0) == pytest.approx(1.0)
    assert Allowance(10, 1_000, 0.0).charge(11, 4_000, 0.0) == pytest.approx(3.0)
    assert Allowance(None, 1_000, 0.0).charge(1_000_000, 1_000, 0.0) == 0.0
    assert Allowance(10, None, 0.0).charge(10, 1_000_000, 0.0) == 0.0


@pytest.mark.parametrize(
    ("messages", "octets", "at_once"),
    [
        (100, None, 100 * MESSAGE_BYTES_MIN),
        (None, 10_000, 10_000),
        (100, 1_000, 1_000),
        (1, None, AT_ONCE_BYTES_MIN),
        (None, 1, AT_ONCE_BYTES_MIN),
    ],
)
def test_at_once_comes_what_a_second_allows(messages: int | None, octets: int | None, at_once: int) -> None:
    assert Allowance(messages, octets, 0.0).bytes_at_once == at_once


def test_without_limits_there_is_nothing_to_keep_account_of() -> None:
    assert allowance(None, None, 0.0) is None
    assert allowance(1, None, 0.0) is not None
