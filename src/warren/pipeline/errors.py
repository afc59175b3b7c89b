"""What ends a command of the pipeline, worded for the person who started it."""

from __future__ import annotations


class PipelineError(Exception):
    """It cannot go on; the text is the one line that says why, and which option to change."""


class UsageError(PipelineError):
    """The options contradict each other, or do not say enough: known before anything is done."""
