"""What TLS connections are encrypted with: certificates, keys, versions and ciphers, from the settings.

A connection keeps the context that it began with. So `Tls.replace` gives new connections new certificates,
and ends none of the others.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warren.server.certificate import LoginRule, certificate_of
from warren.server.config_error import ConfigError
from warren.server.tls_refusal import AlertingContext
from warren.session.peer import Certificate, Encryption

VERIFY = {"none": ssl.CERT_NONE, "peer": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
CRL_HEADER = "-----BEGIN X509 CRL-----"
VERSIONS = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings `tls_…`; `Config` explains them."""

    cert: str
    key: str
    key_password: str
    ca: str
    crl: str
    verify: str
    versions: tuple[str, ...]
    ciphers: str
    login: LoginRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was read from the files."""

    settings: TlsSettings  # which name the files
    context: ssl.SSLContext
    cert_expires: tuple[int, ...]  # when our certificate does, and those in its file that it is signed with
    ca_expires: tuple[int, ...]  # when those do that clients' certificates are signed with


class Tls:
    """The context of new connections, and the rule for their certificates."""

    def __init__(self, settings: TlsSettings) -> None:
        self.replace(load_files(settings))

    def replace(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.context = loaded.context
        self.login = loaded.settings.login
        self.suites: dict[str, Any] = {each["name"]: each for each in loaded.context.get_ciphers()}

    def encryption(self, connection: ssl.SSLObject) -> Encryption:
        """What a connection has agreed on, once its handshake is done."""
        return Encryption(certificate=self._certificate(connection), **_suite(self.suites, connection))

    def _certificate(self, connection: ssl.SSLObject) -> Certificate | None:
        shown = connection.getpeercert()  # empty unless the certificate was verified
        return certificate_of(shown, self.login) if shown else None


def load_files(settings: TlsSettings) -> Loaded:
    from warren.server import certificate_expiry  # noqa: PLC0415 - slow to import, and only needed with TLS

    context = make_context(settings)
    return Loaded(
        settings=settings,
        context=context,
        cert_expires=certificate_expiry.expiry_of_file(settings.cert),
        ca_expires=certificate_expiry.expiry_of_authorities(context),
    )


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Read the files. The error names the setting, the file and the reason."""
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [VERSIONS[name] for name in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError as error:
            raise ConfigError(f"tls_ciphers = {settings.ciphers!r}: no such cipher") from error
    _load_certificate(context, settings)
    if settings.ca:
        _load_authorities(context, settings.ca)
    if settings.crl:
        _load_revoked(context, settings.crl)
    context.verify_mode = VERIFY[settings.verify]
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    _check_certificate("tls_cert", settings.cert)
    key = settings.key or settings.cert
    if "PRIVATE KEY-----" not in _read("tls_key", key):
        raise ConfigError(f"tls_key = {key!r}: there is no private key in PEM format in it")
    try:
        context.load_cert_chain(settings.cert, key, lambda: settings.key_password)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"tls_key = {key!r}: it is not the key of {settings.cert}") from error
        hint = "; is tls_key_password right?" if "ENCRYPTED" in _read("tls_key", key) else ""
        raise ConfigError(
            f"tls_cert = {settings.cert!r}, tls_key = {key!r}: cannot be read ({reason}{hint})"
        ) from error


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_certificate("tls_ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"tls_ca = {path!r}: {error.reason or error}") from error


def _load_revoked(context: ssl.SSLContext, path: str) -> None:
    """Certificates in this file would be trusted as authorities, so it may have none."""
    text = _read("tls_crl", path)
    if CRL_HEADER not in text:
        raise ConfigError(f"tls_crl = {path!r}: there is no list of revoked certificates in PEM format in it")
    if ssl.PEM_HEADER in text:
        raise ConfigError(f"tls_crl = {path!r}: there are certificates in it, which belong into tls_ca")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"tls_crl = {path!r}: cannot be read ({error.reason or error})") from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _check_certificate(setting: str, path: str) -> None:
    text = _read(setting, path)
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    try:
        ssl.PEM_cert_to_DER_cert(text[max(0, begin) : end + len(ssl.PEM_FOOTER)])
    except ValueError as error:
        raise ConfigError(f"{setting} = {path!r}: there is no certificate in PEM format in it") from error


def _read(setting: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"{setting} = {path!r}: {error.strerror}") from error


def _suite(suites: Mapping[str, Any], connection: ssl.SSLObject) -> dict[str, str]:
    """The version and the parts of the cipher suite, as OpenSSL describes them: `kx-ecdhe`, `auth-rsa`."""
    name, _, _ = connection.cipher() or ("", "", 0)
    suite: Mapping[str, Any] = suites.get(name, {})
    exchange, proof = (str(suite.get(part, "any-any")).partition("-")[2] for part in ("kea", "auth"))
    return {
        "protocol": (connection.version() or "").lower(),
        "key_exchange": exchange if exchange == "any" else f"{exchange}_{proof}",
        "cipher": str(suite.get("symmetric", name)).replace("-", "_"),
        "hash": "aead" if suite.get("aead") else str(suite.get("digest") or ""),
    }
