"""`warren config`, and the reference of settings that is made from the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from warren.cli.main import main
from warren.server.config_reference import as_markdown, settings

PROJECT = Path(__file__).parents[3]
SECRET = "hidden-s3cret"  # noqa: S105 - a password that must not be shown
SHOVEL = '[[shovels]]\nname = "s"\nsrc-queue = "q"\ndest-uri = "amqp://"\n'


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No warren.toml of the working directory is read."""
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return str(path)


def test_a_file_that_is_right_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", write(tmp_path, "port = 5673")]) == 0
    assert capsys.readouterr().out == "all settings are right\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("port = 99999", "port = 99999: expected 0 to 65535"),
        ("prot = 1", "unknown setting prot"),
        ("port =", "cannot read"),
        ("[[policies]]", "each policy needs a name"),
        ("[[shovels]]", "shovels: each shovel needs a name"),
        ("shovels = 5", "shovels: expected a list"),
        ('[[shovels]]\nname = "s"\nvhost = 5', "shovels: 's': vhost: expected a string"),
        ('[[shovels]]\nname = "s"', "shovels: shovel 's': src-queue or src-exchange has to be given"),
        (f'{SHOVEL}src-uri = "amqp://me:{SECRET}@b:x"', "src-uri is wrong: the port of the URI is not one"),
        (f'{SHOVEL}src-uri = "amqp://"\ndst = 1', "shovels: shovel 's': dst is not known"),
        ('auth_backends = ["absent"]', "auth_backends: there is no authenticator 'absent'"),
        ('audit_log = "/absent/audit"', "audit_log = /absent/audit: No such file or directory"),
        ('otel_endpoint = "collector:4318"', "otel_endpoint = 'collector:4318': expected a URL such as"),
        (2 * f'{SHOVEL}src-uri = "amqp://"\n', "shovels: 's' is there twice in vhost '/'"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    assert main(["config", "check", write(tmp_path, text)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("warren config check: ")
    assert reason in told
    assert told.count("\n") == 1
    assert SECRET not in told


def test_file_that_is_not_there_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "absent.toml"]) == 2
    told = capsys.readouterr().err
    assert told == "warren config check: cannot read absent.toml: No such file or directory\n"


def test_settings_are_shown_with_the_place_that_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_HEARTBEAT", "7")
    path = write(tmp_path, "port = 5673")
    assert main(["config", "show", "--config", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["port"] == {"value": "5673", "from": path}
    assert shown["heartbeat"] == {"value": "7", "from": "WARREN_HEARTBEAT"}
    assert shown["bind"] == {"value": '"127.0.0.1"', "from": "default"}


def test_a_shovel_that_is_right_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, f'{SHOVEL}vhost = "v"\nsrc-uri = ["amqp://a", "amqps://b"]\nack-mode = "no-ack"')
    assert main(["config", "check", path]) == 0
    assert capsys.readouterr().out == "all settings are right\n"


def test_no_password_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shovel = f'{SHOVEL}src-uri = "amqp://me:{SECRET}@b"'
    path = write(tmp_path, f'[[users]]\nname = "u"\npassword = "{SECRET}"\n{shovel}')
    assert main(["config", "show", "--config", path]) == 0
    assert SECRET not in capsys.readouterr().out


def test_every_setting_is_explained() -> None:
    assert [each.name for each in settings() if not each.text] == []


def test_the_page_of_settings_is_that_of_the_code() -> None:
    page = (PROJECT / "SETTINGS.md").read_text()
    assert page == as_markdown(), "make it again: warren config reference > SETTINGS.md"


def test_certificates_are_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", write(tmp_path, '[tls]\ncert = "absent.pem"')]) == 2
    assert capsys.readouterr().err == (
        "warren config check: tls_cert = 'absent.pem': No such file or directory\n"
    )


def test_lists_of_revoked_certificates_are_read_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = Certificates(tmp_path)
    table = f'[tls]\ncert = "{certificates.server}"\nca = "{certificates.ca}"\nverify = "peer"\ncrl = '
    assert main(["config", "check", write(tmp_path, f'{table}"{certificates.revoke()}"')]) == 0
    assert main(["config", "check", write(tmp_path, f'{table}"{certificates.ca}"')]) == 2
    assert capsys.readouterr().err == (
        f"warren config check: tls_crl = '{certificates.ca}': "
        "there is no list of revoked certificates in PEM format in it\n"
    )


def test_addresses_are_shown_and_the_password_of_a_key_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'listeners = ["[::1]:1", "a:2"]\n[tls]\ncert = "c"\nkey_password = "{SECRET}"'
    assert main(["config", "show", "--config", write(tmp_path, text)]) == 0
    shown = capsys.readouterr().out
    assert 'listeners = ["[::1]:1", "a:2"]' in shown
    assert "tls_key_password = [set]" in shown
    assert SECRET not in shown


def test_listener_behind_a_proxy_is_shown_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'listeners = ["a:1", { address = "b:2", proxy_protocol = true }]'
    assert main(["config", "show", "--config", write(tmp_path, text)]) == 0
    assert text in capsys.readouterr().out
