from __future__ import annotations

from pathlib import Path

import pytest

from warren.server.config import load
from warren.server.config_error import ConfigError

WHOLE = """
auth_backends = ["internal", "oauth2"]
[oauth2]
resource_server_id = "warren"
jwks_url = "https://issuer.example/keys"
algorithms = ["RS256", "ES256"]
verify_aud = false
preferred_username_claims = ["email", "name"]
additional_scopes_key = "roles groups"
[oauth2.scope_aliases]
admin = ["warren.tag:administrator", "warren.read:*/*"]
reader = "warren.read:*/*"
"""


def load_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "oauth.toml"
    path.write_text(text)
    load({"config": str(path)}, {})


def test_whole_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "oauth.toml"
    path.write_text(WHOLE)
    config = load({"config": str(path)}, {})
    found = config.oauth2
    assert config.auth_backends == ("internal", "oauth2")
    assert (found.resource_server_id, found.prefix, found.verify_aud) == ("warren", "warren.", False)
    assert found.algorithms == ("RS256", "ES256")
    assert found.preferred_username_claims == ("email", "name")
    assert found.additional_scopes_key == ("roles", "groups")
    assert found.scope_aliases["admin"] == ("warren.tag:administrator", "warren.read:*/*")
    assert found.scope_aliases["reader"] == ("warren.read:*/*",)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('resource_server_id = "warren"', "", "resource_server_id is missing"),
        ('jwks_url = "https://issuer.example/keys"', "", "one of jwks_file, jwks_url and issuer"),
        ('jwks_url = "https://issuer.example/keys"', 'jwks_url = "file:/keys"', "expected https"),
        ("verify_aud = false", 'jwks_file = "keys"', "not both"),
        ("verify_aud = false", "verify_aud = 1", "expected true or false"),
        ("verify_aud = false", "verify_audience = true", "unknown setting verify_audience"),
        ('["RS256", "ES256"]', '["none"]', "algorithms"),
        ('["RS256", "ES256"]', "[]", "algorithms"),
        ('["RS256", "ES256"]', "[256]", "expected a string"),
        ('jwks_url = "https://issuer.example/keys"', "jwks_url = 1", "expected a string"),
        ('reader = "warren.read:*/*"', "reader = 1", "expected a list"),
    ],
)
def test_setting_that_makes_no_sense_is_named(tmp_path: Path, before: str, after: str, expected: str) -> None:
    assert before in WHOLE
    with pytest.raises(ConfigError, match=expected):
        load_text(tmp_path, WHOLE.replace(before, after))


def test_settings_are_not_looked_at_unless_tokens_are_wanted(tmp_path: Path) -> None:
    load_text(tmp_path, '[oauth2]\njwks_url = "https://issuer.example/keys"\n')
