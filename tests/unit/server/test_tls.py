"""Settings of TLS: what is wrong is named, with its file."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support.certificates import Certificates
from warren.server.certificate import LoginRule
from warren.server.config import Config
from warren.server.config_error import ConfigError
from warren.server.tls import Tls, TlsSettings, make_context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def settings(certificates: Certificates, **more: Any) -> TlsSettings:
    given = {"tls_cert": str(certificates.server), **more}
    found = Config(**given).tls()
    assert found is not None
    return found


def agree(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory. Returns the server's side and the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in (theirs, ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ours, theirs


def test_connection_without_a_certificate_is_described_in_rabbitmqs_words(certificates: Certificates) -> None:
    tls = Tls(settings(certificates))
    ours, _ = agree(tls.context, certificates.context())
    found = tls.encryption(ours)
    assert (found.protocol, found.key_exchange, found.hash) == ("tlsv1.3", "any", "aead")
    assert found.cipher in {"aes_256_gcm", "aes_128_gcm", "chacha20_poly1305"}
    assert found.certificate is None


def test_version_and_ciphers_are_those_of_the_settings(certificates: Certificates) -> None:
    cipher = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"
    tls = Tls(settings(certificates, tls_versions=("tlsv1.2",), tls_ciphers=cipher))
    ours, _ = agree(tls.context, certificates.context())
    found = tls.encryption(ours)
    assert (found.protocol, found.cipher, found.hash) == ("tlsv1.2", "aes_256_gcm", "aead")
    assert found.key_exchange in {"ecdhe_ecdsa", "ecdhe_rsa"}


def test_client_of_another_version_is_refused(certificates: Certificates) -> None:
    client = certificates.context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        agree(make_context(settings(certificates, tls_versions=("tlsv1.3",))), client)


@pytest.mark.parametrize("verify", ["peer", "require"])
def test_certificate_that_was_verified_names_a_user(certificates: Certificates, verify: str) -> None:
    tls = Tls(settings(certificates, tls_ca=str(certificates.ca), tls_verify=verify))
    ours, _ = agree(tls.context, certificates.context(certificates.client("worker")))
    certificate = tls.encryption(ours).certificate
    assert certificate is not None
    assert certificate.user_name == "worker"
    assert "CN=worker" in certificate.subject


def test_certificate_that_was_not_asked_for_names_nobody(certificates: Certificates) -> None:
    tls = Tls(settings(certificates))
    ours, _ = agree(tls.context, certificates.context(certificates.client("worker")))
    assert tls.encryption(ours).certificate is None


def test_client_without_the_required_certificate_is_refused(certificates: Certificates) -> None:
    tls = Tls(settings(certificates, tls_ca=str(certificates.ca), tls_verify="require"))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        agree(tls.context, certificates.context())


@pytest.mark.parametrize("verify", ["peer", "require"])
def test_certificate_of_another_authority_is_refused(
    certificates: Certificates, tmp_path: Path, verify: str
) -> None:
    tls = Tls(settings(certificates, tls_ca=str(certificates.ca), tls_verify=verify))
    client = certificates.context(Certificates(tmp_path).client("worker"))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        agree(tls.context, client)


def with_crl(certificates: Certificates, crl: Path, verify: str = "peer") -> TlsSettings:
    return settings(certificates, tls_ca=str(certificates.ca), tls_verify=verify, tls_crl=str(crl))


@pytest.mark.parametrize("verify", ["peer", "require"])
def test_revoked_certificate_is_refused_and_others_are_not(certificates: Certificates, verify: str) -> None:
    worker, thief = certificates.client("worker"), certificates.client("thief")
    tls = Tls(with_crl(certificates, certificates.revoke(thief), verify))
    ours, _ = agree(tls.context, certificates.context(worker))
    assert tls.encryption(ours).certificate is not None
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        agree(tls.context, certificates.context(thief))


def test_client_without_a_certificate_needs_no_list(certificates: Certificates) -> None:
    tls = Tls(with_crl(certificates, certificates.revoke()))
    ours, _ = agree(tls.context, certificates.context())
    assert tls.encryption(ours).certificate is None


def test_list_of_another_authority_does_not_do(certificates: Certificates, tmp_path: Path) -> None:
    tls = Tls(with_crl(certificates, Certificates(tmp_path).revoke()))
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get certificate CRL"):
        agree(tls.context, certificates.context(certificates.client("worker")))


def test_list_that_is_too_old_does_not_do(certificates: Certificates) -> None:
    tls = Tls(with_crl(certificates, certificates.revoke(days=0)))
    with pytest.raises(ssl.SSLCertVerificationError, match="CRL has expired"):
        agree(tls.context, certificates.context(certificates.client("worker")))


def test_file_may_have_lists_of_several_authorities(certificates: Certificates, tmp_path: Path) -> None:
    others = Certificates(tmp_path)
    thieves = certificates.client("thief"), others.client("thief")
    authorities, lists = tmp_path / "both-ca.pem", tmp_path / "both-crl.pem"
    authorities.write_bytes(certificates.ca.read_bytes() + others.ca.read_bytes())
    lists.write_bytes(certificates.revoke(thieves[0]).read_bytes() + others.revoke(thieves[1]).read_bytes())
    given = {"tls_ca": str(authorities), "tls_verify": "peer", "tls_crl": str(lists)}
    context = make_context(settings(certificates, **given))
    agree(context, certificates.context(others.client("worker")))
    for thief in thieves:
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
            agree(context, certificates.context(thief))


def test_key_may_be_in_a_file_of_its_own_and_encrypted(certificates: Certificates, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s

    issued = certificates.authority.issue_cert("localhost")
    key = s.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"open sesame")
    )
    cert, path = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    path.write_bytes(encrypted)
    given = {"tls_cert": str(cert), "tls_key": str(path)}
    agree(
        make_context(settings(certificates, **given, tls_key_password="open sesame")), certificates.context()
    )
    with pytest.raises(ConfigError, match="tls_key_password") as caught:
        make_context(settings(certificates, **given, tls_key_password="open wide"))
    assert "open wide" not in str(caught.value)


def test_password_of_the_key_is_not_in_the_settings_text() -> None:
    assert "sesame" not in repr(Config(tls_key_password="sesame", cluster_etcd_password="sesame"))


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("setting", "content", "reason"),
    [
        ("tls_cert", None, "No such file"),
        ("tls_key", None, "No such file"),
        ("tls_ca", None, "No such file"),
        ("tls_cert", "nothing", "no certificate"),
        ("tls_ca", "nothing", "no certificate"),
        ("tls_key", "nothing", "no private key"),
        ("tls_cert", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
        ("tls_crl", None, "No such file"),
        ("tls_crl", "nothing", "no list of revoked certificates"),
        ("tls_crl", trustme.CA().cert_pem.bytes().decode(), "no list of revoked certificates"),
        (
            "tls_crl",
            "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"
            + trustme.CA().cert_pem.bytes().decode(),
            "certificates in it, which belong into tls_ca",
        ),
        ("tls_crl", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "cannot be read"),
        ("tls_key", trustme.CA().private_key_pem.bytes().decode(), "is not the key of"),
    ],
)
def test_wrong_file_is_named_with_the_reason(
    certificates: Certificates, tmp_path: Path, setting: str, content: str | None, reason: str
) -> None:
    path = str(tmp_path / "absent.pem") if content is None else write(tmp_path / "wrong.pem", content)
    given = {"tls_key": str(certificates.server), "tls_ca": str(certificates.ca), "tls_verify": "peer"}
    with pytest.raises(ConfigError, match=reason) as caught:
        make_context(settings(certificates, **given | {setting: path}))
    assert setting in str(caught.value)
    assert path in str(caught.value)


def test_unknown_cipher_is_an_error(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match="tls_ciphers = 'ROT13'"):
        make_context(settings(certificates, tls_ciphers="ROT13"))


def test_rule_for_names_comes_from_the_settings(certificates: Certificates) -> None:
    given = {
        "tls_login_from": "subject_alternative_name",
        "tls_login_san_type": "email",
        "tls_login_san_index": 2,
    }
    assert settings(certificates, **given).login == LoginRule("subject_alternative_name", "email", 2)
