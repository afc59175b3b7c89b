"""Nothing that was confirmed is ever lost, whenever the broker is killed.

A real broker under load is killed at random moments and started again on the same data directory, many times.
What the clients know of each message is compared with what is there then; ledger.py says by which rules.

    WARREN_KILL_SEED=…    all is decided as in that run, but for what depends on who is faster
    WARREN_KILL_ROUNDS=…  how many rounds
"""

from __future__ import annotations

import os

import pytest

from tests.crash.campaign import Campaign, End

ROUNDS = int(os.environ.get("WARREN_KILL_ROUNDS", "12"))
ROUND_SECONDS = 15
TERMINATE_SHARE = 0.15
INTERRUPT_SHARE = 0.2
INTERRUPTIONS = 6


@pytest.mark.timeout(60 + ROUNDS * ROUND_SECONDS)
def test_what_was_confirmed_survives_any_number_of_kills(campaign: Campaign) -> None:
    for _ in range(ROUNDS):
        terminate = campaign.chance.random() < TERMINATE_SHARE
        campaign.run_round(End.TERMINATE if terminate else End.KILL)
        if campaign.chance.random() < INTERRUPT_SHARE:
            campaign.interrupt_start()
    campaign.finish()


def test_clean_stop_under_load_keeps_what_was_confirmed(campaign: Campaign) -> None:
    campaign.run_round(End.TERMINATE)
    campaign.run_round(End.TERMINATE)
    campaign.finish()


def test_kills_during_recovery_lose_nothing(campaign: Campaign) -> None:
    campaign.run_round(End.KILL)
    for _ in range(INTERRUPTIONS):
        campaign.interrupt_start()
    campaign.finish()
