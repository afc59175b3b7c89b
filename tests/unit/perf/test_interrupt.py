from __future__ import annotations

import signal

import pytest

from warren.perf.interrupt import Interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_only_sets_the_flag(number: signal.Signals) -> None:
    with Interrupt() as interrupt:
        assert not interrupt.requested
        signal.raise_signal(number)
        assert interrupt.requested


def test_afterwards_ctrl_c_does_what_it_did() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is before
