"""A number that says whether what was worked out earlier still holds."""

from __future__ import annotations


class Version:
    """Goes up with every change that could lead a message elsewhere."""

    def __init__(self) -> None:
        self.number = 1

    def bump(self) -> None:
        self.number += 1
