"""Which broker a command speaks to, with which login, and how it ends if that fails."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from tests.support.recorded_api import RecordedApi
from warren.cli.main import main
from warren.cli.profiles import Profile, ProfileError, load_profile, profiles_path
from warren.cli.target import Given, Target, TargetError, find_target
from warren.client.api import Api
from warren.client.http_url import parse_http_url
from warren.client.uri import UriTls

PROFILES = """
default = "local"

[local]
url = "http://me@broker.example:1234"

[production]
url = "https://ops@broker.example"
amqp = "amqp://amqp.example:5673"
vhost = "shop"
ca = "ca.pem"
cert = "me.pem"
password_file = "PASSWORD_FILE"
"""


@pytest.fixture
def api() -> Iterator[RecordedApi]:
    with RecordedApi() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = profiles_path({"XDG_CONFIG_HOME": str(tmp_path)})
    path.parent.mkdir()
    (tmp_path / "password").write_text("from file\n")
    path.write_text(PROFILES.replace("PASSWORD_FILE", str(tmp_path / "password")))
    return tmp_path


def found(home: Path, given: Given, **environment: str) -> Target:
    return find_target(given, environment={"XDG_CONFIG_HOME": str(home)} | environment, can_prompt=False)


def password(target: Target) -> str | None:
    return target.url.password


def test_local_broker_needs_nothing(tmp_path: Path) -> None:
    url = found(tmp_path, Given()).url
    assert (url.address, url.user, url.password) == ("http://127.0.0.1:15672", "guest", "guest")


def test_profile_by_name_has_url_vhost_certificates_and_password(home: Path) -> None:
    target = found(home, Given(profile="production"))
    assert (target.url.address, target.url.user) == ("https://broker.example:15671", "ops")
    assert (target.url.password, target.vhost, target.tls) == (
        "from file",
        "shop",
        UriTls("ca.pem", "me.pem"),
    )


def test_default_profile_is_used_if_none_is_named(home: Path) -> None:
    assert found(home, Given(), WARREN_PASSWORD="x").url.address == "http://broker.example:1234"


def test_url_goes_over_environment_goes_over_profile(home: Path) -> None:
    login = {"WARREN_URL": "http://a:b@one", "WARREN_PROFILE": "production"}
    assert found(home, Given(), **login).url.host == "one"
    assert found(home, Given(url="http://a:b@two"), **login).url.host == "two"


def test_profile_of_the_command_line_goes_over_the_url_of_the_environment(home: Path) -> None:
    target = found(home, Given(profile="production"), WARREN_URL="http://a:b@one")
    assert (target.url.host, target.url.password) == ("broker.example", "from file")


@pytest.mark.parametrize("place", ["--url", "WARREN_URL"])
@pytest.mark.parametrize("named_by", ["WARREN_PROFILE", "default"])
def test_nothing_of_a_profile_is_used_for_the_broker_of_a_url(home: Path, place: str, named_by: str) -> None:
    """Least of all its password, which that broker would get to see."""
    url = "http://ops@elsewhere"
    given = Given(url=url) if place == "--url" else Given()
    environment = {"WARREN_URL": url} if place == "WARREN_URL" else {}
    path = profiles_path({"XDG_CONFIG_HOME": str(home)})
    if named_by == "default":
        path.write_text(path.read_text().replace('default = "local"', 'default = "production"'))
    else:
        environment["WARREN_PROFILE"] = "production"
    with pytest.raises(TargetError, match="no password for user 'ops' of http://elsewhere"):
        found(home, given, **environment)
    target = found(home, given, **environment, WARREN_PASSWORD="x")
    assert (target.vhost, target.amqp, target.tls) == (None, None, UriTls())


def test_url_and_profile_of_the_command_line_go_together(home: Path) -> None:
    target = found(home, Given(url="http://elsewhere", profile="production"))
    assert (target.url.host, target.url.password, target.vhost) == ("elsewhere", "from file", "shop")


def test_password_file_that_cannot_be_read_is_named_once(home: Path) -> None:
    (home / "password").unlink()
    with pytest.raises(TargetError, match=r"^password_file \S+: No such file or directory$"):
        found(home, Given(profile="production"))


def test_certificates_of_the_command_line_go_over_those_of_the_profile(home: Path) -> None:
    """A key goes with its certificate."""
    given = Given(profile="production", tls=UriTls(cert_file="other.pem", key_file="other.key"))
    assert found(home, given).tls == UriTls("ca.pem", "other.pem", "other.key")
    assert found(home, Given(profile="production", tls=UriTls("other.pem"))).tls.cert_file == "me.pem"


def test_password_of_the_url_goes_over_the_environment_goes_over_the_file(home: Path) -> None:
    given = Given(profile="production")
    assert password(found(home, given, WARREN_PASSWORD="environment")) == "environment"
    in_url = Given(url="http://ops:url@host", profile="production")
    assert password(found(home, in_url, WARREN_PASSWORD="environment")) == "url"


def test_password_is_asked_for_on_a_terminal(tmp_path: Path) -> None:
    asked: list[str] = []

    def prompt(text: str) -> str:
        asked.append(text)
        return "typed"

    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    target = find_target(
        Given(url="http://ops@host"), environment=environment, prompt=prompt, can_prompt=True
    )
    assert password(target) == "typed"
    assert asked == ["Password of ops at http://host:15672: "]


def test_missing_password_without_a_terminal_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="WARREN_PASSWORD"):
        found(tmp_path, Given(url="http://ops@host"))


@pytest.mark.parametrize("text", ["nonsense", "amqp://host", "http://"])
def test_wrong_url_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TargetError, match="--url"):
        found(tmp_path, Given(url=text))
    with pytest.raises(TargetError, match="WARREN_URL"):
        found(tmp_path, Given(), WARREN_URL=text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[a]\nurl = 1", "must be a text"),
        ("[a]\nuser = 'x'", "no setting 'user'"),
        ("a = ", "profiles.toml"),
        ("", "no profile 'a'"),
    ],
)
def test_wrong_profile_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text(content)
    with pytest.raises(ProfileError, match=reason):
        load_profile("a", path)


def test_no_file_is_no_profile(tmp_path: Path) -> None:
    assert load_profile(None, tmp_path / "absent.toml") == Profile()
    with pytest.raises(ProfileError, match="absent"):
        load_profile("a", tmp_path / "absent.toml")


@pytest.mark.parametrize("url", ["http://me:canary/1@host", "http://me:canary#1@host", "http://me:1@[canary"])
def test_password_is_in_no_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(TargetError) as caught:
        found(tmp_path, Given(url=url))
    assert str(caught.value).startswith("--url: ")
    assert "canary" not in str(caught.value)


def test_password_is_not_in_what_is_printed_of_a_url() -> None:
    url = parse_http_url("http://user:secret@host:1/prefix/api/")
    assert "secret" not in repr(url)
    assert url.address == "http://host:1/prefix"


# --- where the broker speaks AMQP ---

PLAIN = {"protocol": "amqp", "port": 1}
ENCRYPTED = {"protocol": "amqp/ssl", "port": 2}
OTHERS = [{"protocol": "http", "port": 3}, {"protocol": "clustering", "port": 4}]


@pytest.mark.parametrize(
    ("scheme", "listeners", "port", "with_tls"),
    [
        ("http", [PLAIN, ENCRYPTED], 1, False),
        ("http", [ENCRYPTED], 2, True),
        ("http", [PLAIN, {**PLAIN, "port": 5}], 1, False),
        ("http", OTHERS, 5672, False),
        ("https", [PLAIN, ENCRYPTED], 2, True),
        ("https", OTHERS, 5671, True),
    ],
)
def test_port_for_amqp_is_the_one_that_the_http_api_tells(
    api: RecordedApi, scheme: str, listeners: list[dict[str, object]], port: int, with_tls: bool
) -> None:
    api.answers = [(200, {"listeners": [*OTHERS, *listeners]})]
    target = Target(parse_http_url(f"{scheme}://me:secret@broker.example"), None, None, UriTls("ca.pem"))
    with Api(parse_http_url(api.url)) as client:
        uri = target.amqp_uri(client)
    assert (uri.host, uri.port, uri.user, uri.password) == ("broker.example", port, "me", "secret")
    assert uri.tls == (UriTls(ca_file="ca.pem") if with_tls else None)


@pytest.mark.parametrize(
    ("text", "tls"),
    [
        ("amqp://other", None),
        ("amqps://other", UriTls(ca_file="ca.pem")),
        ("amqps://other?verify=verify_none", UriTls(ca_file="ca.pem", verify=False)),
        ("amqps://other?cacertfile=its.pem&certfile=me.pem", UriTls("its.pem", "me.pem")),
    ],
)
def test_uri_that_is_given_is_checked_by_the_same_certificates_unless_it_names_others(
    api: RecordedApi, text: str, tls: UriTls | None
) -> None:
    target = Target(parse_http_url("https://me:secret@broker.example"), None, None, UriTls("ca.pem"))
    assert target.amqp_uri(Api(parse_http_url(api.url)), text).tls == tls
    assert api.requests == []


# --- exit codes ---


@pytest.mark.parametrize("content", [None, "nothing"])
@pytest.mark.parametrize(
    "words", ["queues ls --cacert", "import rabbitmq --cacert", "import rabbitmq --to-cacert"]
)
def test_wrong_file_of_certificates_is_exit_2_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    path, url = tmp_path / "ca.pem", "https://a:b@127.0.0.1:1"
    if content is not None:
        path.write_text(content)
    more = ["--to", url, "--amqp", "amqp://a"] if "import" in words else []
    assert main([*words.split(), str(path), "--url", url, *more]) == 2
    assert f"cannot read certificates in {path}: " in capsys.readouterr().err


def test_refusal_is_exit_1_and_the_reason(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(404, {"error": "Object Not Found", "reason": "Not Found"})]
    assert main(["queues", "show", "q", "--url", api.url]) == 1
    assert capsys.readouterr() == ("", "warren queues show: Not Found\n")


def test_failed_login_tells_whose_and_where(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(401, {"error": "not_authorized", "reason": "Login failed"})]
    assert main(["queues", "ls", "--url", api.url]) == 1
    address = api.url.replace("guest:guest@", "")
    assert capsys.readouterr().err == f"warren queues ls: Login failed: user 'guest' at {address}\n"


def test_list_that_is_refused_prints_no_header(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(401, {"error": "not_authorised", "reason": "Not administrator user"})]
    assert main(["users", "ls", "--url", api.url]) == 1
    assert capsys.readouterr() == ("", "warren users ls: Not administrator user\n")


def test_wrong_option_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["queues", "ls", "--colour"])
    assert ended.value.code == 2
    assert "--colour" in capsys.readouterr().err


def test_unknown_command_is_exit_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nonsense"])
    assert ended.value.code == 2


def test_url_that_makes_no_sense_is_exit_2() -> None:
    assert main(["queues", "ls", "--url", "nonsense"]) == 2


def test_no_broker_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # but nobody listens
        port = taken.getsockname()[1]
        assert main(["queues", "ls", "--url", f"http://guest:secret@127.0.0.1:{port}"]) == 3
    err = capsys.readouterr().err
    assert f"http://127.0.0.1:{port}" in err
    assert "secret" not in err


def test_connection_that_was_dropped_is_made_again(api: RecordedApi) -> None:
    client = Api(parse_http_url(api.url))
    api.answers = [(200, 1), (200, 2)]
    assert client.get("x") == 1
    client._connection.sock.shutdown(socket.SHUT_RDWR)
    assert client.get("x") == 2
    client.close()


# --- TLS ---


def target_of(api: RecordedApi, *, scheme: str = "http") -> Target:
    """The target of a recorded API, as if it was reached by this scheme."""
    url = replace(parse_http_url(api.url), scheme=scheme)
    return Target(url, vhost=None, amqp=None, tls=UriTls(ca_file="ca.pem"))


def test_password_does_not_go_from_https_to_amqp_without_tls(api: RecordedApi) -> None:
    api.answers = [(200, {"listeners": [PLAIN]})]
    with Api(parse_http_url(api.url)) as client, pytest.raises(TargetError, match="--amqp"):
        target_of(api, scheme="https").amqp_uri(client)


def test_certificates_that_cannot_be_read_are_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "absent.pem"
    words = ["queues", "ls", "--url", "https://guest:guest@127.0.0.1:1", "--cacert", str(path)]
    assert main(words) == 2
    expected = f"warren queues ls: cannot read certificates in {path}: No such file or directory\n"
    assert capsys.readouterr().err == expected


def test_certificate_that_nobody_vouches_for_is_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Certificates(tmp_path).server)
    api = RecordedApi()
    api.server.socket = context.wrap_socket(api.server.socket, server_side=True)
    with api:
        url = api.url.replace("http", "https")
        assert main(["queues", "ls", "--url", url]) == 3
    address = url.replace("guest:guest@", "")
    assert capsys.readouterr().err.startswith(f"warren queues ls: cannot trust {address}: ")


def test_what_does_not_speak_http_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_with_nonsense, args=(server,))
        thread.start()
        url = f"http://guest:guest@127.0.0.1:{server.getsockname()[1]}"
        assert main(["queues", "ls", "--url", url]) == 3
        thread.join()
    assert capsys.readouterr().err.endswith(": what answers there does not speak HTTP\n")


def answer_with_nonsense(server: socket.socket) -> None:
    client, _address = server.accept()
    with client:
        client.recv(1)
        client.sendall(b"\x15\x03\x03\r\n")
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            continue
