"""A real broker for the tests of other projects.

pytest finds the fixture `warren_broker` by itself (`plugin.py`); other frameworks use `BrokerThread`.
"""

from warren.testing.broker_thread import BrokerThread, RoomInBroker

__all__ = ["BrokerThread", "RoomInBroker"]
