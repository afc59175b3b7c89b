"""Who logs in, over AMQP or HTTP: what the password is compared with, so that a refusal says nothing more."""

from __future__ import annotations

from warren.broker.node import Node
from warren.broker.passwords import PasswordHash


def expected_password(node: Node, name: str, *, is_loopback: bool) -> tuple[PasswordHash, str]:
    """The hash to compare a password with, and for the log the reason why it was wrong. For who cannot log in
    whatever the password is, it is the decoy: so they wait as long as others, and learn nothing of the
    password that there is.
    """
    user = node.users.get(name)
    if user is None or user.password is None:
        return node.passwords.decoy, "unknown user, or one without a password"
    if name in node.limits.loopback_users and not is_loopback:
        return node.passwords.decoy, "this user can only connect via localhost"
    return user.password, "wrong password"
