"""What is wrong with the configuration."""

from __future__ import annotations


class ConfigError(Exception):
    """A setting that makes no sense, in one line for the operator."""
