"""Which broker a command speaks to, and with which login.

The URL comes from `--url`, else from `WARREN_URL`, else from the profile, else it is the local broker's. The
password comes from the URL, else from `WARREN_PASSWORD`, else from the profile's file, else from a prompt; on
the local broker the user guest needs none of these.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from warren.cli.profiles import Profile, ProfileError, load_profile, profiles_path
from warren.client.api import ANSWER_SECONDS_MAX, Api
from warren.client.http_url import HttpUrl, parse_http_url
from warren.client.uri import PORT_DEFAULT, Uri, UriTls, parse_uri

URL_DEFAULT = "http://127.0.0.1:15672"
GUEST = "guest"
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class TargetError(Exception):
    """It is not clear which broker is meant, or the password is missing."""


@dataclass(frozen=True)
class Given:
    """What the command line says about the broker."""

    url: str | None = None
    profile: str | None = None
    vhost: str | None = None
    ca: str | None = None


@dataclass(frozen=True)
class Target:
    url: HttpUrl
    vhost: str | None
    """The vhost that was asked for; None if none was."""
    amqp: str | None
    ca: str | None

    def api(self, answer_seconds_max: float = ANSWER_SECONDS_MAX) -> Api:
        try:
            return Api(self.url, ca_file=self.ca, answer_seconds_max=answer_seconds_max)
        except OSError as error:
            raise TargetError(
                f"the certificates in {self.ca} cannot be read: {error.strerror or error}"
            ) from error

    def amqp_uri(self, api: Api, given: str | None = None) -> Uri:
        """Where the same broker speaks AMQP: as was given, or as the profile says, or else as its HTTP API
        does. The login is that of the HTTP API, unless a user is given.
        """
        text = given or self.amqp
        if text is None:
            uri = self._listener(api)
        else:
            uri = read_amqp_uri(text)
            if urlsplit(text).username is not None:
                return uri
        return replace(uri, user=self.url.user or GUEST, password=self.url.password or "")

    def _listener(self, api: Api) -> Uri:
        """A password that came over TLS does not go on without."""
        wants_tls = self.url.scheme == "https"
        protocol, default = ("amqp/ssl", None) if wants_tls else ("amqp", PORT_DEFAULT)
        listeners = api.get("overview").get("listeners", [])
        port = next((int(each["port"]) for each in listeners if each.get("protocol") == protocol), default)
        if port is None:
            raise TargetError(f"{self.url.address} has no AMQP with TLS: say where it is with --amqp")
        return Uri(self.url.host, port, "", "", "/", UriTls(ca_file=self.ca or "") if wants_tls else None)


def find_target(
    given: Given,
    *,
    environment: Mapping[str, str] = os.environ,
    prompt: Callable[[str], str] = getpass.getpass,
    can_prompt: bool | None = None,
    with_profiles: bool = True,
) -> Target:
    try:
        name = given.profile or environment.get("WARREN_PROFILE")
        profile = load_profile(name, profiles_path(environment)) if with_profiles else Profile()
        text = given.url or environment.get("WARREN_URL") or profile.url or URL_DEFAULT
        url = parse_http_url(text)
    except ProfileError as error:
        raise TargetError(str(error)) from error
    except ValueError as error:
        raise TargetError(f"--url: {error}") from error
    user = url.user or GUEST
    password = url.password if url.password is not None else _password(environment, profile)
    if password is None and user == GUEST and url.host in LOOPBACK:
        password = GUEST
    if password is None:
        if not (sys.stdin.isatty() if can_prompt is None else can_prompt):
            raise TargetError(f"no password for user '{user}' of {url.address}: set WARREN_PASSWORD")
        password = prompt(f"Password of {user} at {url.address}: ")
    return Target(
        url.with_login(user, password), given.vhost or profile.vhost, profile.amqp, given.ca or profile.ca
    )


def read_amqp_uri(text: str) -> Uri:
    try:
        return parse_uri(text)
    except ValueError as error:
        raise TargetError(f"--amqp: {error}") from error


def _password(environment: Mapping[str, str], profile: Profile) -> str | None:
    if "WARREN_PASSWORD" in environment:
        return environment["WARREN_PASSWORD"]
    if profile.password_file is None:
        return None
    try:
        return Path(profile.password_file).expanduser().read_text(encoding="utf-8").split("\n", 1)[0]
    except (OSError, ValueError) as error:
        raise TargetError(f"password_file {profile.password_file}: {error}") from error
