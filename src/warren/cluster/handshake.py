"""How the two ends of a link prove to each other that they know the secret of the cluster, and who they are.

    caller    hello, challenge:32
    called    hello, challenge:32, proof:32
    caller    proof:32

A proof is an HMAC with the secret over the side that gives it, both hellos and both challenges. The
challenges are chance bytes, so no proof is of use a second time, and the proof of one side is not that of the
other. A hello is a frame as `wire.py` has it. What the caller says behind its proof are frames; the called
end says nothing more.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from warren.cluster.messages import Hello
from warren.cluster.wire import HEADER, PREFIX, agreed_version, decode, encode
from warren.cluster.wire_values import WireError

CHALLENGE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES_MAX = 1024
SECRET_BYTES_MIN = 16

CALLER, CALLED = b"caller", b"called"


class WrongSecret(WireError):
    """The other end does not know the secret of this cluster."""


class _Side:
    def __init__(self, hello: Hello, secret: bytes, challenge: bytes) -> None:
        assert len(challenge) == CHALLENGE_BYTES
        self.hello = hello
        self.secret = secret
        self.mine = encode(hello) + challenge  # what this end says first
        self.theirs = b""  # the same of the other end
        self.buffer = b""  # what has come, and is not dealt with
        self.peer: Hello | None = None  # the other end, once it has proved who it is
        self.said: Hello | None = None  # what the other end says of itself
        self.version = 0  # of the protocol that both ends speak

    def _take(self, count: int) -> bytes | None:
        """The next bytes; None if not all of them have come."""
        if len(self.buffer) < count:
            return None
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _take_hello(self) -> bool:
        """Take the other end's hello and challenge. Return whether they are there."""
        if len(self.buffer) < PREFIX.size:
            return False
        length, _ = PREFIX.unpack_from(self.buffer)
        if not HEADER.size <= length <= HELLO_BYTES_MAX:
            raise WireError("the other end does not say hello")
        frame_bytes = PREFIX.size + length
        taken = self._take(frame_bytes + CHALLENGE_BYTES)
        if taken is None:
            return False
        hello = decode(taken[:frame_bytes])
        if not isinstance(hello, Hello):
            raise WireError("the other end does not say hello")
        self.version = agreed_version(self.hello, hello)
        if hello.store == self.hello.store:
            raise WireError("the other end is this store itself")
        self.theirs, self.said = taken, hello
        return True

    def _proof(self, side: bytes) -> bytes:
        caller, called = (self.mine, self.theirs) if isinstance(self, Caller) else (self.theirs, self.mine)
        return hmac.new(self.secret, side + caller + called, sha256).digest()

    def _check(self, side: bytes, proof: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(side)):
            raise WrongSecret("the other end does not know the secret of this cluster")
        self.peer = self.said


class Caller(_Side):
    """The end that has opened the link. It begins by sending `mine`."""

    def feed(self, data: bytes) -> bytes:
        """Bytes have come. Return what to send: empty until the other end has proved who it is."""
        self.buffer += data
        if self.said is None and not self._take_hello():
            return b""
        proof = None if self.peer is not None else self._take(PROOF_BYTES)
        if proof is None:
            return b""
        self._check(CALLED, proof)
        return self._proof(CALLER)


class Called(_Side):
    """The end that was called."""

    def feed(self, data: bytes) -> bytes:
        """Bytes have come. Return what to send. Once `peer` is there, `buffer` has the first frames."""
        self.buffer += data
        answer = b""
        if self.said is None:
            if not self._take_hello():
                return b""
            answer = self.mine + self._proof(CALLED)
        proof = None if self.peer is not None else self._take(PROOF_BYTES)
        if proof is not None:
            self._check(CALLER, proof)
        return answer
