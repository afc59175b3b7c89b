"""Certificates for tests, signed by an authority that is made for them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


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

    def revoke(self, *certificates: Path, days: int = 2) -> Path:
        """The authority's list of revoked certificates, which holds for so many days from yesterday."""
        authority = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey), "such are the authorities that trustme makes"
        yesterday = datetime.now(UTC) - timedelta(days=1)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(authority.subject)
            .last_update(yesterday)
            .next_update(yesterday + timedelta(days=days))
        )
        for path in certificates:
            number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(yesterday)
            builder = builder.add_revoked_certificate(entry.build())
        made = self.directory / "crl.pem"
        made.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return made

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """What a client that trusts the authority connects with."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context
