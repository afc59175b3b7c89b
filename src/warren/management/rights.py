"""Who may use which endpoint, by the tags of users, as in RabbitMQ.

| tag             | may                                                                       |
|-----------------|---------------------------------------------------------------------------|
| `management`    | see and change objects in vhosts where the user has permissions            |
| `policymaker`   | the same, and policies and parameters of these vhosts                      |
| `monitoring`    | the same as `management`, and see all vhosts, connections and the node     |
| `administrator` | everything: users, vhosts, permissions, definitions, others' connections   |
"""

from __future__ import annotations

from enum import Enum

from aiohttp import web

from warren.broker.access import User
from warren.management.errors import NotAuthorised

MANAGEMENT, POLICYMAKER = "management", "policymaker"
MONITORING, ADMINISTRATOR = "monitoring", "administrator"
USER = web.RequestKey("USER", User)


class Right(Enum):
    """The tags of which a user needs one, if any, and the reason that is given to users without."""

    PUBLIC = (frozenset[str](), "needs no login")
    USER = (frozenset[str](), "any user: the endpoint looks at the user's permissions itself")
    MANAGEMENT = (frozenset({MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR}), "Not management user")
    POLICYMAKER = (frozenset({POLICYMAKER, ADMINISTRATOR}), "Not policymaker user")
    MONITORING = (frozenset({MONITORING, ADMINISTRATOR}), "Not monitor user")
    ADMINISTRATOR = (frozenset({ADMINISTRATOR}), "Not administrator user")

    def is_had_by(self, user: User) -> bool:
        return not self.value[0] or bool(user.tags & self.value[0])


def check_right(request: web.Request, right: Right) -> None:
    if right is not Right.PUBLIC and not right.is_had_by(request[USER]):
        raise NotAuthorised(right.value[1])


def user_of(request: web.Request) -> User:
    return request[USER]
