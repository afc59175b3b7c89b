from __future__ import annotations

import pytest

from warren.server.certificate import LoginRule, certificate_of, distinguished_name

SHOWN = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Hare, Fox & Co"),),
        (("commonName", "worker"),),
    ),
    "issuer": ((("commonName", "authority"),),),
    "notBefore": "Jan  5 09:34:43 2026 GMT",
    "notAfter": "Jan  5 09:34:43 2036 GMT",
    "subjectAltName": (
        ("DNS", "one.example.org"),
        ("email", "worker@example.org"),
        ("DNS", "two.example.org"),
        ("URI", "spiffe://example.org/worker"),
        ("IP Address", "192.0.2.7"),
    ),
}


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        (LoginRule("common_name"), "worker"),
        (LoginRule("distinguished_name"), "CN=worker,O=Hare\\, Fox & Co,C=DE"),
        (LoginRule("subject_alternative_name"), "one.example.org"),
        (LoginRule("subject_alternative_name", "dns", 1), "two.example.org"),
        (LoginRule("subject_alternative_name", "dns", 2), ""),
        (LoginRule("subject_alternative_name", "email"), "worker@example.org"),
        (LoginRule("subject_alternative_name", "uri"), "spiffe://example.org/worker"),
        (LoginRule("subject_alternative_name", "ip"), "192.0.2.7"),
        (LoginRule("none"), ""),
    ],
)
def test_rule_chooses_the_user(rule: LoginRule, user: str) -> None:
    assert certificate_of(SHOWN, rule).user_name == user


def test_texts_are_those_of_rabbitmq() -> None:
    certificate = certificate_of(SHOWN, LoginRule("none"))
    assert certificate.subject == "CN=worker,O=Hare\\, Fox & Co,C=DE"
    assert certificate.issuer == "CN=authority"
    assert certificate.validity == "2026-01-05T09:34:43Z - 2036-01-05T09:34:43Z"


@pytest.mark.parametrize("source", ["common_name", "distinguished_name", "subject_alternative_name"])
def test_certificate_without_names_names_nobody(source: str) -> None:
    shown = {"notBefore": SHOWN["notBefore"], "notAfter": SHOWN["notAfter"]}
    assert certificate_of(shown, LoginRule(source)).user_name == ""


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), ""),
        (((("commonName", "a"), ("userId", "b")),), "CN=a+UID=b"),
        (((("commonName", "#a"),),), "CN=\\#a"),
        (((("commonName", ' a+"b"'),),), 'CN=\\ a\\+\\"b\\"'),
        (((("1.2.3", "x"),),), "1.2.3=x"),
    ],
)
def test_distinguished_names_are_escaped(parts: tuple[tuple[tuple[str, str], ...], ...], text: str) -> None:
    assert distinguished_name(parts) == text
