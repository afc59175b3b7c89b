"""Whether another node runs. Its record in etcd does not tell that: it stays when the node has ended.

Two ways lead to a node that runs, of which one may be cut off:

    call    whoever listens at its address proves to be that node, as over any link between nodes
    etcd    who asks writes `asked` into the node's record; the node sees that, and takes it out again

Somebody else may listen by now where a node was called: another node, or the one that asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from warren.cluster.handshake import CHALLENGE_BYTES, Caller
from warren.cluster.wire_values import WireError
from warren.server.address import is_port, split_address
from warren.server.cluster.bootstrap import change_record, facts_of
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.peers import NodeCredentials

CONNECT_SECONDS_MAX = 2.0
PROOF_SECONDS_MAX = 2.0
READ_BYTES_MAX = 4096
ASKED = "asked"  # in a node's record: the run of another node that wants to know
LOOKS_MAX = 20  # whether an answer has come
LOOK_SECONDS = 0.1


async def runs(etcd: Etcd, prefix: str, node: str, facts: Mapping[str, str], asker: NodeCredentials) -> bool:
    """Whether the node runs whose record says this."""
    return await can_be_called(facts, asker) or await answers(etcd, prefix, node, asker.hello.run)


async def can_be_called(facts: Mapping[str, str], caller: NodeCredentials) -> bool:
    """Whether the node that has registered with this is where it said."""
    host, port = split_address(facts.get("peers", ""))
    if not host or not is_port(port):
        return False
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=caller.client_tls)
    except (OSError, TimeoutError):
        return False
    try:
        async with asyncio.timeout(PROOF_SECONDS_MAX):
            return await _store_there(reader, writer, caller) == facts.get("store")
    except TimeoutError:  # it may be that node, standing still
        return True
    except (OSError, WireError):
        return False
    finally:
        writer.transport.abort()


async def _store_there(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: NodeCredentials
) -> str:
    """The store at the other end, once it has proved that; empty if it closes the connection before."""
    challenge = credentials.random_bytes(CHALLENGE_BYTES)
    caller = Caller(credentials.hello, credentials.secret, challenge)
    writer.write(caller.mine)
    while caller.peer is None:
        data = await reader.read(READ_BYTES_MAX)
        if not data:
            return ""
        caller.feed(data)
    return caller.peer.store


async def answers(etcd: Etcd, prefix: str, node: str, asker: str) -> bool:
    """Whether the node takes `asked` out of its record. If it was asked before by the same node, and has not
    answered until now, nobody waits for it again.
    """
    if (await facts_of(etcd, prefix, node)).get(ASKED) == asker:
        return False
    if not await change_record(etcd, prefix, node, lambda facts: {**facts, ASKED: asker}):
        return False
    for _ in range(LOOKS_MAX):
        await asyncio.sleep(LOOK_SECONDS)
        facts = await facts_of(etcd, prefix, node)
        if ASKED not in facts:
            return bool(facts)
    return False


async def answer(etcd: Etcd, prefix: str, node: str) -> None:
    """This node runs, and was asked."""
    await change_record(etcd, prefix, node, _without_question)


def _without_question(facts: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in facts.items() if name != ASKED}
