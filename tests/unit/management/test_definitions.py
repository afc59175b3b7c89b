"""The topology of a vhost over HTTP, as RabbitMQ exports it."""

from __future__ import annotations

from tests.support.http_api import Api
from warren.broker import commands


async def test_topology_of_a_vhost_is_exported(api: Api) -> None:
    node = api.broker.node
    for command in (
        commands.DeclareExchange(vhost="/", name="shop", type="topic", arguments={"alternate-exchange": "a"}),
        commands.DeclareQueue(vhost="/", name="orders", arguments={"x-message-ttl": 5}),
        commands.Bind(vhost="/", source="shop", destination="orders", to_queue=True, routing_key="order.#"),
        commands.Bind(vhost="/", source="amq.fanout", destination="shop", to_queue=False),
        commands.PutPolicy(
            vhost="/", name="p", pattern="^x", definition={"max-length": 3}, apply_to="queues"
        ),
    ):
        node.execute(command)
    told = (await api.get("/api/definitions/%2F")).json
    assert told == {
        "vhost": "/",
        "policies": [
            {
                "name": "p",
                "pattern": "^x",
                "apply-to": "queues",
                "definition": {"max-length": 3},
                "priority": 0,
            }
        ],
        "queues": [
            {
                "name": "orders",
                "durable": node.vhosts["/"].queues["orders"].durable,
                "auto_delete": False,
                "arguments": {"x-message-ttl": 5},
            }
        ],
        "exchanges": [
            {
                "name": "shop",
                "type": "topic",
                "durable": node.vhosts["/"].exchanges["shop"].durable,
                "auto_delete": False,
                "internal": False,
                "arguments": {"alternate-exchange": "a"},
            }
        ],
        "bindings": told["bindings"],
    }
    assert sorted(told["bindings"], key=lambda each: str(each["source"])) == [
        {
            "source": "amq.fanout",
            "destination": "shop",
            "destination_type": "exchange",
            "routing_key": "",
            "arguments": {},
        },
        {
            "source": "shop",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        },
    ]


async def test_vhost_that_is_not_there_is_404(api: Api) -> None:
    assert (await api.get("/api/definitions/absent")).status == 404
