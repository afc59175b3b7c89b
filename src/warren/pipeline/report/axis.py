"""The marks of a plot's axes: round values and times, and their labels."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from warren.pipeline.report.words import number

ROUND_STEPS = (1, 2, 5, 10)
TIME_STEPS = [
    timedelta(seconds=seconds)
    for seconds in (
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600,
        86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 91 * 86400, 365 * 86400,
    )
]  # fmt: skip
THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHORT_FROM = 10_000


def round_step(least: float) -> float:
    """The lowest of …, 1, 2, 5, 10, 20, … that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in ROUND_STEPS if step * power >= least * (1 - 1e-9))


def ticks(highest: float, most: int = 5) -> list[float]:
    """Marks from 0 to the highest value or above, with a round step between them; at most `most` steps."""
    if not highest > 0:
        return [0.0, 1.0]
    step = round_step(highest / most)
    return [step * i for i in range(math.ceil(highest / step - 1e-9) + 1)]


def time_ticks(first: datetime, last: datetime, most: int = 6) -> list[datetime]:
    """Round times between the two."""
    span = last - first
    step = next((s for s in TIME_STEPS if span / s <= most), TIME_STEPS[-1])
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight + step * math.ceil((first - midnight) / step)
    found = []
    while at <= last:
        found.append(at)
        at += step
    return found


def time_label(moment: datetime, span: timedelta) -> str:
    if span >= timedelta(days=3):
        return moment.strftime("%m-%d")
    if span >= timedelta(days=1):
        return moment.strftime("%m-%d %H:%M")
    return moment.strftime("%H:%M:%S" if span < timedelta(minutes=10) else "%H:%M")


def short(value: float) -> str:
    """A number of few characters: 12.5k rather than 12,500."""
    if abs(value) >= SHORT_FROM:
        for scale, letter in THOUSANDS:
            if abs(value) >= scale:
                return f"{value / scale:.3g}{letter}"
    return number(value)
