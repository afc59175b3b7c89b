"""Errors that end a command of the pipeline, worded for the person who started it."""

from __future__ import annotations


class PipelineError(Exception):
    """The command cannot go on; the text is one line that says why, and which option to change."""


class UsageError(PipelineError):
    """Options contradict each other, or one is missing. Raised before anything is done."""
