"""Tokens and the keys that they are signed with, made for the test."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

EVERYTHING = "warren.read:*/* warren.write:*/* warren.configure:*/*"


class Issuer:
    """Signs tokens with a key of its own."""

    def __init__(self, key_id: str = "one", algorithm: str = "ES256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.key: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if algorithm == "ES256"
            else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )

    def jwk(self) -> dict[str, Any]:
        kind: Any = ECAlgorithm if self.algorithm == "ES256" else RSAAlgorithm
        found: dict[str, Any] = kind.to_jwk(self.key.public_key(), as_dict=True)
        return found | {"kid": self.key_id, "use": "sig", "alg": self.algorithm}

    def jwks(self) -> str:
        return json.dumps({"keys": [self.jwk()]})

    def write_jwks(self, path: Path) -> Path:
        path.write_text(self.jwks())
        return path

    def token(self, *, seconds: float | None = 600, names_key: bool = True, **claims: Any) -> str:
        """For the user `me` with every permission, unless `claims` say something else."""
        given = {"sub": "me", "aud": ["warren"], "scope": EVERYTHING} | claims
        if seconds is not None:
            given["exp"] = int(time.time() + seconds)
        wanted = {name: value for name, value in given.items() if value is not None}
        headers = {"kid": self.key_id} if names_key else {}
        return jwt.encode(wanted, self.key, algorithm=self.algorithm, headers=headers)
