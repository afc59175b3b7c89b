"""Logging in, over AMQP or HTTP: which hash to compare a password with, so that a refusal tells nothing."""

from __future__ import annotations

from warren.broker.node import Node
from warren.broker.passwords import PasswordHash

LOOPBACK_ONLY = "this user can only connect via localhost"


def expected_password(node: Node, name: str, *, is_loopback: bool) -> tuple[PasswordHash, str]:
    """The hash to compare a password with, and the reason to log if they differ.

    For a user who cannot log in with any password it is the decoy. So the refusal takes as long as any other,
    and does not tell whether the user exists or the password was right.
    """
    user = node.users.get(name)
    if user is None or user.password is None:
        return node.passwords.decoy, "unknown user, or one without a password"
    if name in node.limits.loopback_users and not is_loopback:
        return node.passwords.decoy, LOOPBACK_ONLY
    return user.password, "wrong password"
