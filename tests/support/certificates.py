"""Certificates for tests, signed by an authority that is made for them."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """Files in a directory: `ca`, and for each name that was issued a file with certificate and key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.server = self.issue("server", "localhost", "127.0.0.1", "::1")

    def issue(self, name: str, *identities: str, common_name: str | None = None) -> Path:
        path = self.directory / f"{name}.pem"
        issued = self.authority.issue_cert(*identities, common_name=common_name)
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def client(self, name: str) -> Path:
        """A client's certificate with this common name."""
        return self.issue(f"client-{name}", f"{name}.example.org", common_name=name)

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """What a client that trusts the authority connects with."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context
