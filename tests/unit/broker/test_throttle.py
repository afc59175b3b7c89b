from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fakes import FakeWorld
from warren.broker import throttle as module
from warren.broker.throttle import CHECKED_AT_ONCE_MAX, FORGET_SECONDS, Attempt, Throttle

FREE = 3
DELAY_MAX = 8.0


class Knock(Attempt):
    def __init__(self, door: Door, address: str, user: str, still_wanted: Callable[[], bool]) -> None:
        super().__init__(address, user)
        self.door = door
        self.still_wanted = still_wanted

    def go(self) -> None:
        self.door.passed.append(self)

    def is_wanted(self) -> bool:
        return self.still_wanted()


class Door:
    """A throttle, and the attempts that it has let through."""

    def __init__(self, delay_seconds_max: float = DELAY_MAX) -> None:
        self.world = FakeWorld()
        self.throttle = Throttle(self.world, FREE, delay_seconds_max)
        self.passed: list[Attempt] = []

    def knock(
        self, address: str = "here", user: str = "me", is_wanted: Callable[[], bool] = lambda: True
    ) -> Attempt:
        attempt = Knock(self, address, user, is_wanted)
        self.throttle.enter(attempt)
        self.world.run()
        return attempt

    def answer(self, attempt: Attempt, *, success: bool) -> None:
        self.throttle.left(attempt, success=success)
        self.world.run()

    def fail(self, count: int, address: str = "here", user: str = "me") -> None:
        """So many attempts that fail, each as soon as it may be made."""
        for _ in range(count):
            attempt = self.knock(address, user)
            while attempt not in self.passed:
                self.wait(0.5)
            self.answer(attempt, success=False)

    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.world.run()

    def seconds_until_passed(self, attempt: Attempt) -> float:
        waited = 0.0
        while attempt not in self.passed:
            self.wait(0.5)
            waited += 0.5
        return waited


def test_first_failures_cost_no_time() -> None:
    door = Door()
    for _ in range(FREE):
        attempt = door.knock()
        assert door.passed[-1] is attempt
        door.answer(attempt, success=False)


def test_delays_grow_up_to_the_most() -> None:
    door = Door()
    door.fail(FREE)
    waited = []
    for _ in range(6):
        attempt = door.knock()
        waited.append(door.seconds_until_passed(attempt))
        door.answer(attempt, success=False)
    assert waited == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize(("address", "user"), [("here", "another"), ("elsewhere", "me")])
def test_delay_holds_for_the_address_and_for_the_user(address: str, user: str) -> None:
    door = Door()
    door.fail(FREE)
    assert door.seconds_until_passed(door.knock(address, user)) == 1.0


def test_others_elsewhere_do_not_wait() -> None:
    door = Door()
    door.fail(FREE + 3)
    assert door.knock("elsewhere", "another") in door.passed


def test_success_forgets_what_failed_at_its_address() -> None:
    door = Door()
    door.fail(FREE)
    attempt = door.knock()
    door.seconds_until_passed(attempt)
    door.answer(attempt, success=True)
    assert door.knock() in door.passed
    assert door.knock("here", "another") in door.passed


def test_user_who_was_let_in_is_not_locked_out_from_elsewhere() -> None:
    door = Door()
    door.answer(door.knock("home", "me"), success=True)
    door.fail(FREE + 3, "elsewhere", "me")
    assert door.knock("home", "me") in door.passed
    assert door.knock("new", "me") not in door.passed


def test_success_as_another_user_does_not_open_the_gate_of_the_first() -> None:
    door = Door()
    door.fail(FREE)
    own = door.knock("here", "attacker")
    door.seconds_until_passed(own)
    door.answer(own, success=True)
    door.fail(1)
    assert door.knock("elsewhere", "me") not in door.passed


def test_failures_are_forgotten_after_a_while() -> None:
    door = Door()
    door.fail(FREE + 3)
    door.wait(FORGET_SECONDS + 1)
    assert door.knock() in door.passed


def test_attempts_at_once_are_bounded_before_the_first_has_failed() -> None:
    door = Door()
    attempts = [door.knock() for _ in range(50)]
    assert len(door.passed) == CHECKED_AT_ONCE_MAX
    for attempt in attempts[:CHECKED_AT_ONCE_MAX]:
        door.answer(attempt, success=False)
    assert len(door.passed) <= CHECKED_AT_ONCE_MAX + FREE
    before = len(door.passed)
    door.wait(1.0)
    assert len(door.passed) <= before + 1, "a gate with many failures lets them pass one by one"


def test_many_right_logins_at_once_all_pass() -> None:
    door = Door()
    attempts = [door.knock(user=f"user{number}") for number in range(50)]
    while len(door.passed) < len(attempts):
        before = len(door.passed)
        for attempt in door.passed[:before]:
            if attempt.gates:
                door.answer(attempt, success=True)
        assert len(door.passed) > before
    assert door.world.time == FakeWorld().time, "nobody had to wait"


def test_client_that_has_gone_does_not_keep_those_behind_it_waiting() -> None:
    door = Door()
    door.fail(FREE)
    gone = [False]
    first = door.knock(is_wanted=lambda: not gone[0])
    others = [door.knock() for _ in range(3)]
    gone[0] = True
    door.wait(1.0)
    assert first not in door.passed
    assert len(door.passed) == FREE + 1
    assert door.passed[-1] in others


def test_who_would_have_to_wait_too_long_is_not_kept() -> None:
    door = Door(delay_seconds_max=100)
    door.fail(FREE + 2)
    checked = door.knock()
    door.wait(4.0)
    assert checked in door.passed
    behind = [door.knock() for _ in range(3)]
    door.answer(checked, success=False)  # now the gate is closed for 8 seconds
    door.wait(8.0)
    last = door.passed[-1]
    assert last in behind
    door.answer(last, success=False)  # 16 seconds
    door.knock()
    assert not door.throttle.addresses["here"].waiting
    assert door.world.later == []
    door.wait(16.0)
    assert door.knock() in door.passed


def test_waiting_attempts_with_many_names_take_no_memory() -> None:
    door = Door()
    door.fail(FREE + 2, user="")
    for number in range(100):
        door.knock(user=f"user{number}")
    assert not door.throttle.users


def test_gates_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATES_MAX", 10)
    monkeypatch.setattr(module, "SUCCESSES_MAX", 10)
    door = Door()
    for number in range(100):
        door.answer(door.knock(f"bad{number}", f"bad{number}"), success=False)
        door.answer(door.knock(f"good{number}", f"good{number}"), success=True)
    assert list(door.throttle.addresses) == [f"bad{number}" for number in range(90, 100)]
    assert len(door.throttle.users) == 10
    assert len(door.throttle.successes) == 10


def test_attempt_without_a_name_counts_for_its_address_alone() -> None:
    door = Door()
    door.fail(FREE, user="")
    assert not door.throttle.users
    assert door.knock(user="") not in door.passed
    assert door.throttle.seconds_to_wait("here", "") == pytest.approx(1.0, abs=0.1)
    assert door.throttle.seconds_to_wait("elsewhere", "me") == 0.0


def test_without_a_delay_nobody_waits() -> None:
    door = Door(delay_seconds_max=0)
    door.fail(FREE + 10)
    assert door.knock() in door.passed
    assert not door.throttle.addresses
