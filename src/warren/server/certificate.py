"""A client's certificate, as Python's `ssl` hands it out: its texts, and the user whom it names.

Distinguished names are written as in RFC 4514, most specific part first: `CN=worker,O=Acme`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from warren.session.peer import Certificate

LOGIN_SOURCES = ("common_name", "distinguished_name", "subject_alternative_name", "none")
SAN_TYPES = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}
SHORT_NAMES = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
ESCAPED = '\\,+"<>;'

Parts = Iterable[Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class LoginRule:
    """Which part of a client's certificate is the name of a user."""

    source: str  # one of `LOGIN_SOURCES`
    san_type: str = "dns"  # which kind of alternative name, of `SAN_TYPES`
    san_index: int = 0  # which of those of that kind


def certificate_of(shown: Mapping[str, Any], login: LoginRule) -> Certificate:
    """`shown` is what `SSLObject.getpeercert` gives for a certificate that was verified."""
    subject: Parts = shown.get("subject", ())
    return Certificate(
        subject=distinguished_name(subject),
        issuer=distinguished_name(shown.get("issuer", ())),
        validity=f"{_time(shown['notBefore'])} - {_time(shown['notAfter'])}",
        user_name=_user_name(shown, login),
    )


def distinguished_name(parts: Parts) -> str:
    """Write a name that is a sequence of sets of attributes; sets have one attribute but for rare cases."""
    written = ["+".join(_attribute(key, value) for key, value in part) for part in parts]
    return ",".join(reversed(written))


def _attribute(key: str, value: str) -> str:
    escaped = "".join("\\" + each if each in ESCAPED else each for each in value)
    if escaped.startswith((" ", "#")):
        escaped = "\\" + escaped
    return f"{SHORT_NAMES.get(key, key)}={escaped}"


def _user_name(shown: Mapping[str, Any], login: LoginRule) -> str:
    subject: Parts = shown.get("subject", ())
    if login.source == "distinguished_name":
        return distinguished_name(subject)
    if login.source == "common_name":
        return ",".join(value for part in subject for key, value in part if key == "commonName")
    if login.source == "subject_alternative_name":
        kind = SAN_TYPES[login.san_type]
        names = [value for each, value in shown.get("subjectAltName", ()) if each == kind]
        return names[login.san_index] if login.san_index < len(names) else ""
    return ""


def _time(text: str) -> str:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
