"""The error for a wrong configuration."""

from __future__ import annotations


class ConfigError(Exception):
    """A setting is wrong; the text says so in one line for the operator."""
