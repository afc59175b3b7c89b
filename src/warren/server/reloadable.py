"""Which settings can change while the broker runs, by SIGHUP; all others need a restart."""

from __future__ import annotations

ALWAYS = {"log_level", "reload_definitions", "memory_watermark", "disk_free_limit"}
DEFINITIONS = {"vhosts", "users", "policies", "operator_policies", "vhost_limits"}
IF_WANTED = {*DEFINITIONS, "shovels"}
"""If `reload_definitions` is on."""
WITH_TLS = {
    "tls_cert",
    "tls_key",
    "tls_key_password",
    "tls_ca",
    "tls_crl",
    "tls_verify",
    "tls_versions",
    "tls_ciphers",
    "tls_login_from",
    "tls_login_san_type",
    "tls_login_san_index",
}
"""If the broker has had TLS since its start, and still is to have it."""
