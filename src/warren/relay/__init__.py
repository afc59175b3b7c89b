"""Relays: shovels and federation, which carry messages between brokers."""
