from __future__ import annotations

import asyncio

from warren.server.reception import BEGUN_A_TURN, Reception

WAIT_SECONDS_MAX = 10


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_if_too_many_wait_the_one_that_came_first_has_to_go() -> None:
    reception = Reception(asyncio.get_running_loop(), waiting_max=2)
    gone: list[int] = []
    for number in range(4):
        reception.receive(forever(), lambda number=number: gone.append(number))  # type: ignore[misc]  # mypy infers no type for the default
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert gone == [0, 1]
    assert reception.count() == 2
    await reception.close()
    assert gone == [0, 1, 2, 3]
    assert reception.count() == 0


async def test_only_a_few_begin_in_a_turn_and_in_the_order_of_arrival() -> None:
    loop = asyncio.get_running_loop()
    reception = Reception(loop)
    turn, begun = 0, list[tuple[int, int]]()

    async def welcome(number: int) -> None:
        await reception.take_turn()
        begun.append((turn, number))

    for number in range(3 * BEGUN_A_TURN):
        reception.receive(welcome(number), lambda: None)
    while reception.count():
        await asyncio.sleep(0)
        turn += 1
    assert [number for _, number in begun] == list(range(3 * BEGUN_A_TURN))
    turns = [turn for turn, _ in begun]
    assert all(turns.count(each) <= BEGUN_A_TURN for each in turns)


async def test_client_that_gave_up_takes_nobodys_turn() -> None:
    reception = Reception(asyncio.get_running_loop())
    first = asyncio.create_task(reception.take_turn())
    second = asyncio.create_task(reception.take_turn())
    first.cancel()
    await asyncio.wait_for(second, WAIT_SECONDS_MAX)
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()


async def test_client_that_is_let_in_is_not_sent_away() -> None:
    """Neither for others that wait, nor when the broker stops, which waits for it."""
    loop = asyncio.get_running_loop()
    reception = Reception(loop, waiting_max=1)
    may_end: asyncio.Future[None] = loop.create_future()
    ended: list[str] = []

    async def enter() -> None:
        reception.let_in()
        await may_end
        ended.append("connected")

    reception.receive(enter(), lambda: ended.append("over"))
    await asyncio.sleep(0)
    assert reception.count() == 0
    reception.receive(forever(), lambda: ended.append("sent away"))
    reception.receive(forever(), lambda: ended.append("sent away"))
    loop.call_later(0, may_end.set_result, None)
    await asyncio.wait_for(reception.close(), WAIT_SECONDS_MAX)
    assert sorted(ended) == ["connected", "over", "sent away", "sent away"]
    assert reception.entering == set()


async def test_error_that_nobody_foresaw_is_reported() -> None:
    loop = asyncio.get_running_loop()
    reported: asyncio.Future[object] = loop.create_future()
    loop.set_exception_handler(lambda _loop, context: reported.set_result(context["exception"]))

    async def fail() -> None:
        raise KeyError("ours")

    Reception(loop).receive(fail(), lambda: None)
    assert isinstance(await asyncio.wait_for(reported, WAIT_SECONDS_MAX), KeyError)
