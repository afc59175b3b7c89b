"""A number by which remembered routes and permissions are known to be out of date."""

from __future__ import annotations


class Version:
    """Goes up with every change of a vhost that may change a route or take a permission away."""

    def __init__(self) -> None:
        self.number = 1

    def bump(self) -> None:
        self.number += 1
