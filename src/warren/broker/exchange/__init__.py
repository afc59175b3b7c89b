"""Exchanges, one file a type. A new type implements `Router` and is found by the entry point
`warren.exchange_types`.
"""
