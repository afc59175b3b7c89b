"""When certificates expire. Python's `ssl` tells it of peers' certificates and of authorities, but not of our
own: those are read by `cryptography`. It takes a while to import, so only brokers with TLS import this.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509

from warren.server.config_error import ConfigError


def expiry_of_file(path: str) -> tuple[int, ...]:
    """Of all certificates in a file of our own, in seconds since 1970."""
    try:
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"tls_cert = {path!r}: {error}") from error
    return tuple(int(each.not_valid_after_utc.timestamp()) for each in found)


def expiry_of_authorities(context: ssl.SSLContext) -> tuple[int, ...]:
    """Of those that clients' certificates are verified with."""
    return tuple(ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs())
