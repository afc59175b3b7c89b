"""Exchanges, and a file for each type. A type is a class that implements `Router`, named by an entry point in
the group `warren.exchange_types`, so that other packages can add types.
"""
