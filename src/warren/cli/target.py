"""Which broker a command speaks to, and with which login.

The URL comes from `--url`, else from the profile that `--profile` names, else from `WARREN_URL`, else from
another profile (`WARREN_PROFILE`, or the default one), else it is the local broker's. The password comes from
the URL, else from `WARREN_PASSWORD`, else from the profile's file, else from a prompt; on the local broker
the user guest needs none of these.

Where a URL is given, a profile counts only if `--profile` names it: the password, the certificates and the
AMQP address of one broker are never used for another.
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
from warren.client.api import ANSWER_SECONDS_MAX, GUEST, Api
from warren.client.errors import ClientError
from warren.client.http_url import HttpUrl, parse_http_url
from warren.client.uri import NO_FILES, PORT_DEFAULT, TLS_PORT_DEFAULT, Uri, UriTls, parse_uri

URL_DEFAULT = "http://127.0.0.1:15672"
AMQP, AMQPS = "amqp", "amqp/ssl"  # as an HTTP API names them
URL_VARIABLE = "WARREN_URL"
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class TargetError(Exception):
    """It is not clear which broker is meant, or the password is missing."""


@dataclass(frozen=True)
class Given:
    """What the command line says about the broker."""

    url: str | None = None
    profile: str | None = None
    vhost: str | None = None
    tls: UriTls = NO_FILES


@dataclass(frozen=True)
class Target:
    url: HttpUrl
    vhost: str | None
    """The vhost that was asked for; None if none was."""
    amqp: str | None
    tls: UriTls = NO_FILES
    """How to speak TLS, over https and with amqps."""

    def api(self, *, answer_seconds_max: float = ANSWER_SECONDS_MAX) -> Api:
        try:
            return Api(self.url, tls=self.tls, answer_seconds_max=answer_seconds_max)
        except ClientError as error:  # a file cannot be read
            raise TargetError(str(error)) from error

    def amqp_uri(self, api: Api, given: str | None = None) -> Uri:
        """Where the same broker speaks AMQP: as was given, or as the profile says, or else as its HTTP API
        does. The login is that of the HTTP API, unless a user is given. With TLS, certificates are those
        for https, unless others are given.
        """
        text = given or self.amqp
        uri = self._told_by(api) if text is None else read_amqp_uri(text)
        uri = with_files(uri, self.tls)
        if text is not None and urlsplit(text).username is not None:
            return uri
        return replace(uri, user=self.url.user or GUEST, password=self.url.password or "")

    def _told_by(self, api: Api) -> Uri:
        """A password that goes to the HTTP API with TLS does not go to AMQP without. A broker that does not
        say where it listens, since the user may not know, gets the usual port.
        """
        kinds = [(AMQP, PORT_DEFAULT, None), (AMQPS, TLS_PORT_DEFAULT, self.tls)]
        if self.url.scheme == "https":
            kinds = kinds[1:]
        told = api.get("overview").get("listeners", [])
        ports = {each.get("protocol"): int(each["port"]) for each in reversed(told)}  # the first one counts
        if AMQP in ports and not any(each[0] in ports for each in kinds):
            raise TargetError(f"{self.url.address} has no AMQP with TLS: say where it is with --amqp")
        kind, port, tls = next((each for each in kinds if each[0] in ports), kinds[0])
        return Uri(self.url.host, ports.get(kind, port), "", "", "/", tls)


def find_target(
    given: Given,
    *,
    environment: Mapping[str, str] = os.environ,
    prompt: Callable[[str], str] = getpass.getpass,
    can_prompt: bool | None = None,
    with_profiles: bool = True,
) -> Target:
    profile = _profile(given, environment) if with_profiles else Profile()
    url = _url(given, environment, profile)
    user = url.user or GUEST
    password = url.password if url.password is not None else _password(environment, profile)
    if password is None and user == GUEST and url.host in LOOPBACK:
        password = GUEST
    if password is None:
        if not (sys.stdin.isatty() if can_prompt is None else can_prompt):
            raise TargetError(f"no password for user '{user}' of {url.address}: set WARREN_PASSWORD")
        password = prompt(f"Password of {user} at {url.address}: ")
    return Target(
        url.with_login(user, password),
        given.vhost or profile.vhost,
        profile.amqp,
        _files(given.tls, profile),
    )


def _profile(given: Given, environment: Mapping[str, str]) -> Profile:
    """An empty one, if a URL is given and `--profile` is not."""
    if given.profile is None and (given.url or environment.get(URL_VARIABLE)):
        return Profile()
    try:
        return load_profile(given.profile or environment.get("WARREN_PROFILE"), profiles_path(environment))
    except ProfileError as error:
        raise TargetError(str(error)) from error


def _url(given: Given, environment: Mapping[str, str], profile: Profile) -> HttpUrl:
    """The first that is given. An error names its place, and not the URL, which may have a password in it."""
    places = {
        "--url": given.url,
        "url of the profile": profile.url,  # empty if it is not named and `WARREN_URL` is given
        URL_VARIABLE: environment.get(URL_VARIABLE),
    }
    for place, text in places.items():
        if text:
            try:
                return parse_http_url(text)
            except ValueError as error:
                raise TargetError(f"{place}: {error}") from error
    return parse_http_url(URL_DEFAULT)


def read_amqp_uri(text: str) -> Uri:
    try:
        return parse_uri(text)
    except ValueError as error:
        raise TargetError(f"--amqp: {error}") from error


def with_files(uri: Uri, tls: UriTls) -> Uri:
    """The URI, with the files of `tls` where it speaks TLS and names none."""
    if uri.tls is None:
        return uri
    named = uri.tls
    own = named if named.cert_file else tls  # a key goes with its certificate
    files = replace(
        named, ca_file=named.ca_file or tls.ca_file, cert_file=own.cert_file, key_file=own.key_file
    )
    return replace(uri, tls=files)


def _files(given: UriTls, profile: Profile) -> UriTls:
    """Those of the command line go over those of the profile."""
    of_profile = UriTls(profile.ca or "", profile.cert or "", profile.key or "")
    own = given if given.cert_file else of_profile
    return UriTls(given.ca_file or of_profile.ca_file, own.cert_file, own.key_file)


def _password(environment: Mapping[str, str], profile: Profile) -> str | None:
    if "WARREN_PASSWORD" in environment:
        return environment["WARREN_PASSWORD"]
    if profile.password_file is None:
        return None
    try:
        return Path(profile.password_file).expanduser().read_text(encoding="utf-8").split("\n", 1)[0]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TargetError(f"password_file {profile.password_file}: {reason}") from error
