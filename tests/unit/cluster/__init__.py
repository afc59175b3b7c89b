"""Tests of `warren.cluster`."""
