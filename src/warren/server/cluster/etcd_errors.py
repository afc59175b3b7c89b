"""What can go wrong with etcd, told so that an operator can act on it."""

from __future__ import annotations


class EtcdError(Exception):
    """`was_refused`: etcd has told us that it did not do what was asked."""

    was_refused = False


class Unreachable(EtcdError):
    """No endpoint has answered. `was_sent`: one of them may have got the request all the same."""

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class Compacted(EtcdError):
    """The wanted revision is older than what etcd keeps."""


class Refused(EtcdError):
    """etcd does not do this, now or later: no permission, a wrong password, too large."""

    was_refused = True


class Busy(EtcdError):
    """etcd has too much to do, and does not do this now."""

    was_refused = True


class TokenEnded(EtcdError):
    """The token of our user is not known any more: log in again."""


class Failed(EtcdError):
    """etcd answered with an error that leaves open whether it has done what was asked."""


COMPACTED = "required revision has been compacted"
ENDED_TOKENS = ("invalid auth token", "revision in auth store is old")
REFUSALS = {  # what etcd says, and what an operator can do
    "permission denied": "etcd's user has no permission for the keys of this cluster (etcdctl role "
    "grant-permission)",
    "user name is empty": "etcd wants a user: set cluster.etcd_user and cluster.etcd_password",
    "authentication failed": "etcd refuses the user or password of cluster.etcd_user",
    "authentication is not enabled": "etcd has no authentication: leave cluster.etcd_user unset",
    "request is too large": "etcd refuses a request as too large (--max-request-bytes)",
    "too many operations": "etcd allows fewer operations in a transaction than 128 (--max-txn-ops)",
}
BUSY = "too many requests"
NO_SPACE = "database space exceeded"  # no refusal: etcd says so, too, of what has just filled the database
NO_SPACE_ADVICE = (
    "etcd's database is full: raise its quota, compact and defragment it, then disarm its alarm "
    "(etcdctl alarm disarm)"
)


def error_of(text: str) -> EtcdError:
    """The error that a text of etcd stands for."""
    if COMPACTED in text:
        return Compacted(text)
    if any(ended in text for ended in ENDED_TOKENS):
        return TokenEnded(text)
    for said, advice in REFUSALS.items():
        if said in text:
            return Refused(f"{advice} ({text})")
    if BUSY in text:
        return Busy(f"etcd has too much to do, and refuses requests for now ({text})")
    if NO_SPACE in text:
        return Failed(f"{NO_SPACE_ADVICE} ({text})")
    return Failed(f"etcd says: {text}")
