"""Answers of the HTTP API beside those of a real RabbitMQ with the same objects and clients: the same fields,
of the same types, and the same refusals. What we leave out on purpose is in `LEFT_OUT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.clients.conftest import needs_rabbitmq, serve_until
from tests.support.management_client import ManagementClient
from tests.support.process import BrokerProcess
from tests.support.rabbitmq import RabbitMQ

pytestmark = [pytest.mark.slow, needs_rabbitmq]

LEFT_OUT = (
    # Erlang's processes, and what its virtual machine does for each of them:
    "garbage_collection", "reductions", "reductions_details", "erlang_version", "erlang_full_version",
    # how RabbitMQ's classic queues hold messages; ours are told by messages_ram, messages_paged_out, …:
    "backing_queue_status",
    # mirrors of classic queues, and the Raft of quorum queues:
    "recoverable_slaves", "pending_raft_commands", "ra_open_file_metrics",
    # RabbitMQ's own tables of statistics:
    "metrics_gc_queue_length",
    # its web server, and options of sockets that ours do not have:
    "cowboy_opts", "ssl_opts", "socket_opts.exit_on_close", "socket_opts.linger", "socket_opts.ip",
    "socket_opts.port",
    # we count what the group commit writes and reads (io_… of nodes), not single messages on disk:
    "message_stats.disk_reads", "message_stats.disk_reads_details", "message_stats.disk_writes",
    "message_stats.disk_writes_details",
    # pages of RabbitMQ's management:
    "javascript",
)  # fmt: skip
LEFT_OUT_OF_LISTS = {
    # to find these out takes too long for lists that are polled; the answer about one queue has them:
    "queues": (
        "messages_persistent", "message_bytes_persistent", "readers", "open_files", "messages_dlx",
        "message_bytes_dlx", "single_active_consumer_ctag",
    ),
}  # fmt: skip
COMES_AND_GOES = ("idle_since",)  # with time; RabbitMQ has it also of channels that were never used
FREE = ("arguments", "client_properties", "definition", "value", "effective_policy_definition")
"""Tables of the user, whose keys are no fields."""
VHOST = "fields"
QUEUES: dict[str, dict[str, object]] = {
    "classic": {"x-max-length": 100},
    "single": {"x-single-active-consumer": True},
    "priorities": {"x-max-priority": 3},
    "quorum": {"x-queue-type": "quorum", "x-single-active-consumer": True},
    "stream": {"x-queue-type": "stream"},
}
CONSUMED = ("classic", "single", "quorum")
POLICY = {"pattern": "^classic", "definition": {"expires": 10_000_000}, "apply-to": "queues"}
TOPICS = {"exchange": "events", "write": ".*", "read": ".*"}
SHOWN = (
    "overview", "whoami", "cluster-name", "extensions", "nodes", "nodes/{node}", "connections",
    "connections/{connection}", "connections/{connection}/channels", "channels", "channels/{publisher}",
    "channels/{consumer}", "consumers", "exchanges", f"exchanges/{VHOST}/events", "queues",
    *(f"queues/{VHOST}/{name}" for name in (*QUEUES, "exclusive")), "bindings",
    f"bindings/{VHOST}/e/events/q/classic/a.%23", "vhosts", f"vhosts/{VHOST}", "users", "users/guest",
    "permissions", f"permissions/{VHOST}/guest", "topic-permissions", "policies", f"policies/{VHOST}/p",
    "operator-policies", f"operator-policies/{VHOST}/p", "parameters", "global-parameters",
    "global-parameters/g", "vhost-limits", "user-limits", "feature-flags", "definitions",
)  # fmt: skip


@dataclass
class Scene:
    """A broker with objects and a client."""

    api: ManagementClient
    names: dict[str, str]  # what is named differently in both brokers

    def path(self, pattern: str) -> str:
        return pattern.format(**{name: quote(each, safe="") for name, each in self.names.items()})

    def get(self, pattern: str) -> Any:
        return self.api.call("GET", self.path(pattern))

    def fields(self, pattern: str) -> dict[str, set[str]]:
        return fields_of(self.get(pattern), self.names["node"])


def define(api: ManagementClient) -> None:
    api.call("PUT", f"vhosts/{VHOST}", {"description": "d", "tags": "a"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.call("PUT", f"permissions/{VHOST}/guest", everything)
    api.call("PUT", f"exchanges/{VHOST}/events", {"type": "topic", "durable": True})
    for name, arguments in QUEUES.items():
        api.call("PUT", f"queues/{VHOST}/{name}", {"durable": True, "arguments": arguments})
    api.call("POST", f"bindings/{VHOST}/e/events/q/classic", {"routing_key": "a.#"})
    for kind in ("policies", "operator-policies"):
        api.call("PUT", f"{kind}/{VHOST}/p", POLICY)
    api.call("PUT", f"vhost-limits/{VHOST}/max-queues", {"value": 70})
    api.call("PUT", "user-limits/guest/max-channels", {"value": 70})
    api.call("PUT", f"topic-permissions/{VHOST}/guest", TOPICS)
    api.call("PUT", "global-parameters/g", {"value": 7})


def use(connection: pika.BlockingConnection) -> None:
    publisher = connection.channel()
    publisher.confirm_delivery()
    for name in QUEUES:
        for mode in (1, 2, 2):
            properties = pika.BasicProperties(delivery_mode=mode, timestamp=1_700_000_000)
            publisher.basic_publish("", name, b"body", properties)
    publisher.basic_publish("events", "a.b", b"body")
    consumer = connection.channel()
    consumer.basic_qos(prefetch_count=1)
    for name in CONSUMED:
        consumer.basic_consume(name, lambda *_: None)
    consumer.queue_declare("exclusive", exclusive=True)
    consumer.basic_consume("exclusive", lambda *_: None, exclusive=True)
    consumer.basic_get("priorities")


def is_told(api: ManagementClient) -> bool:
    """Whether the statistics have come: both brokers gather them every 5 seconds. RabbitMQ gathers those of
    connections, channels and queues each by themselves, and lists nothing that has told none.
    """
    queues = api.call("GET", f"queues/{VHOST}")
    channels = api.call("GET", f"vhosts/{VHOST}/channels")
    return (
        bool(api.call("GET", f"vhosts/{VHOST}/connections"))
        and ["message_stats" in row for row in channels] == [True, True]
        and all(row.get("message_stats", {}).get("publish") for row in queues if row["name"] in QUEUES)
    )


def scene_of(http_url: str, amqp: pika.URLParameters) -> Iterator[Scene]:
    api = ManagementClient(http_url)
    define(api)
    amqp.virtual_host = VHOST
    amqp.client_properties = {"connection_name": "mine"}
    with pika.BlockingConnection(amqp) as connection:
        use(connection)
        serve_until(lambda: connection.process_data_events(0.2), lambda: is_told(api))
        [row] = api.call("GET", f"vhosts/{VHOST}/connections")
        name = row["name"]
        yield Scene(
            api,
            {
                "node": row["node"],
                "connection": name,
                "publisher": f"{name} (1)",
                "consumer": f"{name} (2)",
            },
        )
    for path in (f"vhosts/{VHOST}", "global-parameters/g", "user-limits/guest/max-channels"):
        api.call("DELETE", path)


@pytest.fixture(scope="module")
def there(rabbitmq: RabbitMQ) -> Iterator[Scene]:
    yield from scene_of(rabbitmq.http_url, pika.URLParameters(rabbitmq.amqp_url()))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with BrokerProcess(tmp_path_factory.mktemp("warren") / "data") as broker:
        yield from scene_of(broker.http_url, pika.URLParameters(broker.address.url()))


def fields_of(value: Any, node: str, above: str = "") -> dict[str, set[str]]:
    """All fields of objects in a value, with the types of their values: `queue.name`. Those of objects in a
    list are told together.
    """
    found: dict[str, set[str]] = {}
    items = value if isinstance(value, list) else [value]
    for item in items:
        for name, part in item.items() if isinstance(item, dict) else ():
            path = above + ("NODE" if name == node else name)
            found.setdefault(path, set()).add(type_of(part))
            if name not in FREE:
                for below, types in fields_of(part, node, f"{path}.").items():
                    found.setdefault(below, set()).update(types)
    return found


def type_of(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return "null" if value is None else type(value).__name__


def is_left_out(pattern: str, field: str) -> bool:
    left_out = (*LEFT_OUT, *LEFT_OUT_OF_LISTS.get(pattern, ()), *COMES_AND_GOES)
    return any(f".{name}." in f".{field}." for name in left_out)


@pytest.mark.parametrize("pattern", SHOWN)
def test_every_field_of_rabbitmq_is_here_or_left_out_on_purpose(
    there: Scene, here: Scene, pattern: str
) -> None:
    theirs, ours = there.fields(pattern), here.fields(pattern)
    assert {field for field in theirs if field not in ours and not is_left_out(pattern, field)} == set()


@pytest.mark.parametrize("pattern", SHOWN)
def test_fields_have_the_types_that_they_have_in_rabbitmq(there: Scene, here: Scene, pattern: str) -> None:
    """A value that is not known is null, and in RabbitMQ an empty object may be an empty list."""
    theirs, ours = there.fields(pattern), here.fields(pattern)
    differing = {
        field: (theirs[field], ours[field])
        for field in theirs.keys() & ours.keys()
        if field.rpartition(".")[2] not in FREE
        and not (theirs[field] | {"null"} >= ours[field] or ours[field] | {"null", "list"} >= theirs[field])
    }
    assert differing == {}


def test_what_is_left_out_is_not_here(here: Scene) -> None:
    """Else it would be in the wrong list."""
    fields = {field for pattern in SHOWN for field in here.fields(pattern)}
    assert {name for name in LEFT_OUT for field in fields if f".{name}." in f".{field}."} == set()


COLUMNS = {
    "overview": "cluster_name,queue_totals",
    "nodes/{node}": "name,mem_used",
    f"queues/{VHOST}/classic": "name,messages,arguments.x-max-length,message_stats.publish",
    f"exchanges/{VHOST}/events": "name,type",
    f"vhosts/{VHOST}": "name",
    "users/guest": "name,tags",
    f"permissions/{VHOST}/guest": "user,read",
    f"policies/{VHOST}/p": "name,definition",
    f"bindings/{VHOST}/e/events/q/classic/a.%23": "source",
    "whoami": "name",
    "consumers": "consumer_tag,queue.name",
}


@pytest.mark.parametrize("pattern", COLUMNS)
def test_columns_of_one_object_are_those_of_rabbitmq(there: Scene, here: Scene, pattern: str) -> None:
    query = f"{pattern}?columns={COLUMNS[pattern]}"
    assert here.fields(query) == there.fields(query)


@pytest.mark.parametrize(
    "path",
    [
        *(f"queues/{VHOST}", f"exchanges/{VHOST}", "connections", "channels", "vhosts"),
        *("policies", "operator-policies", "permissions", "topic-permissions", "parameters"),
        *(f"vhosts/{VHOST}/permissions", "users/guest/permissions", "global-parameters"),
    ],
)
def test_lists_have_pages_where_rabbitmq_has_them(there: Scene, here: Scene, path: str) -> None:
    query = f"{path}?page=1&page_size=500"
    theirs, ours = there.get(query), here.get(query)
    assert type(ours) is type(theirs)
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        counted: Callable[[dict[str, Any]], dict[str, Any]] = lambda page: {  # noqa: E731 - used here only
            name: page[name] for name in page if name != "items"
        }
        assert counted(ours) == counted(theirs)


@pytest.mark.parametrize(
    "query",
    [
        *("page=0", "page=-1", "page=x", "page=", "page=1.5", "page=99999"),
        *("page=1&page_size=0", "page=1&page_size=501", "page=1&page_size=x", "page_size=x"),
        *(
            "page=1&name=nothing-like-it",
            "page=1&name=CLASSIC",
            "page_size=0",
            "page_size=501",
            "page=2&page_size=6",
        ),
        *("page=1&use_regex=yes", "page=1&name=%5ECLA&use_regex=true", "disable_stats=perhaps&page=1"),
        *(
            "lengths_age=60&lengths_incr=0",
            "lengths_age=x&lengths_incr=1",
            "msg_rates_age=100000000&msg_rates_incr=5",
        ),
        "msg_rates_age=2500&msg_rates_incr=5",
    ],
)
def test_queries_of_lists_are_understood_as_rabbitmq_does(there: Scene, here: Scene, query: str) -> None:
    """The words of refusals are the same, and so are the names in the answer."""

    def outcome(scene: Scene) -> object:
        status, answer = scene.api.ask("GET", f"queues/{VHOST}?{query}")
        if isinstance(answer, list):
            return status, sorted(row["name"] for row in answer)
        items = answer.pop("items", None)
        return status, answer, None if items is None else sorted(row["name"] for row in items)

    assert outcome(here) == outcome(there)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"queues/{VHOST}/classic", {"durable": False}),
        (f"queues/{VHOST}/x", {"durable": "perhaps"}),
        (f"queues/{VHOST}/x", {"arguments": {"x-max-length": -1}}),
        (f"queues/{VHOST}/amq.x", {}),
        ("queues/absent/x", {}),
        (f"exchanges/{VHOST}/events", {"type": "fanout"}),
        (f"exchanges/{VHOST}/x", {"type": "absent"}),
        (f"policies/{VHOST}/x", {}),
        (f"policies/{VHOST}/x", {"pattern": "(", "definition": {"expires": 1000}}),
        (f"policies/{VHOST}/x", {"pattern": "x", "definition": {"absent": 1}}),
        (f"permissions/{VHOST}/absent", {"configure": "", "write": "", "read": ""}),
        (f"permissions/{VHOST}/guest", {"configure": ""}),
        ("users/x", {}),
        (f"vhost-limits/{VHOST}/absent", {"value": 1}),
        (f"parameters/shovel/{VHOST}/x", {"value": {}}),
    ],
)
def test_bad_input_has_the_status_and_error_of_rabbitmq(
    there: Scene, here: Scene, path: str, value: object
) -> None:
    """The reasons are in our own words: they name what is wrong."""
    (status, theirs), (ours_status, ours) = (each.api.ask("PUT", path, value) for each in (there, here))
    assert (ours_status, ours["error"]) == (status, theirs["error"])
    assert status >= 400
    assert ours["reason"]
