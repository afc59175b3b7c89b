"""Tests of the cluster."""
