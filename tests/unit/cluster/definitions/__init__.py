"""Tests of `warren.cluster.definitions`."""
