"""The ledger notices every kind of wrong, and nothing that is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.crash.definitions import BindingThing, Definitions, ExchangeThing, QueueThing, Thing
from tests.crash.ledger import Ledger, Rule
from tests.crash.message import Delivery, Message, Route, make_message
from tests.support.frames import Content
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties

QUEUE = "q"
ROUTE = Route("x", "key", (QUEUE,))
BODY = b"a body"


def message(number: int = 1, publisher: str = "p", mode: int = PERSISTENT, route: Route = ROUTE) -> Message:
    return make_message(publisher, number, route, BasicProperties(delivery_mode=mode), BODY)


def came(of: Message, *, redelivered: bool = False) -> Content[m.BasicGetOk]:
    got = m.BasicGetOk(
        delivery_tag=1,
        redelivered=redelivered,
        exchange=of.route.exchange,
        routing_key=of.route.routing_key,
        message_count=0,
    )
    return Content(got, of.properties, BODY)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.add_queue(QUEUE)
    return ledger


def publish(ledger: Ledger, *messages: Message, confirmed: bool = True) -> None:
    for each in messages:
        ledger.publish(each)
        if confirmed:
            ledger.confirm(each)


def broken(ledger: Ledger) -> list[Rule]:
    return [violation.rule for violation in ledger.violations]


ONE, TWO, THREE = message(1), message(2), message(3)


# --- what must be there ---


def test_confirmed_message_that_is_there_once_is_right(ledger: Ledger) -> None:
    publish(ledger, ONE, TWO)
    ledger.check(QUEUE, [came(ONE), came(TWO)])
    assert ledger.verdict() == ""


def test_confirmed_message_that_is_not_there_is_lost(ledger: Ledger) -> None:
    publish(ledger, ONE, TWO)
    ledger.check(QUEUE, [came(TWO)])
    assert broken(ledger) == [Rule.LOST]
    assert "queue 'q': p/1 (6 bytes, persistent, confirmed, never delivered) is not there" in ledger.verdict()


def test_message_is_looked_for_in_every_queue_it_was_routed_to(ledger: Ledger) -> None:
    ledger.add_queue("r")
    both = message(route=Route("x", "key", (QUEUE, "r")))
    publish(ledger, both)
    ledger.check(QUEUE, [came(both)])
    ledger.check("r", [])
    assert [str(violation) for violation in ledger.violations] == [
        "LOST: queue 'r': p/1 (6 bytes, persistent, confirmed, never delivered) is not there"
    ]


@pytest.mark.parametrize("there", [True, False])
def test_message_without_confirm_may_be_there_or_not(ledger: Ledger, *, there: bool) -> None:
    publish(ledger, ONE, confirmed=False)
    ledger.check(QUEUE, [came(ONE)] if there else [])
    assert ledger.verdict() == ""


@pytest.mark.parametrize("there", [True, False])
def test_transient_message_may_be_there_or_not(ledger: Ledger, *, there: bool) -> None:
    passing = message(mode=TRANSIENT)
    publish(ledger, passing)
    ledger.check(QUEUE, [came(passing)] if there else [])
    assert ledger.verdict() == ""


def test_message_that_was_there_after_a_restart_must_be_there_after_the_next(ledger: Ledger) -> None:
    publish(ledger, ONE, confirmed=False)
    ledger.check(QUEUE, [came(ONE)])
    ledger.check(QUEUE, [])
    assert broken(ledger) == [Rule.LOST]


def test_message_that_was_not_there_after_a_restart_must_not_be_there_after_the_next(ledger: Ledger) -> None:
    publish(ledger, ONE, confirmed=False)
    ledger.check(QUEUE, [])
    ledger.check(QUEUE, [came(ONE)])
    assert broken(ledger) == [Rule.CAME_BACK]


# --- what must not be there ---


def test_message_that_is_there_twice_is_duplicated(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.check(QUEUE, [came(ONE), came(ONE)])
    assert broken(ledger) == [Rule.DUPLICATED]


def test_message_of_nobody_was_never_published(ledger: Ledger) -> None:
    assert ledger.check(QUEUE, [came(ONE)]) == [""]
    assert broken(ledger) == [Rule.NEVER_PUBLISHED]


def test_message_of_another_queue_was_never_published_to_this_one(ledger: Ledger) -> None:
    ledger.add_queue("r")
    publish(ledger, ONE)
    ledger.check("r", [came(ONE)])
    assert broken(ledger) == [Rule.NEVER_PUBLISHED]


def test_message_without_an_id_was_never_published(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.check(QUEUE, [came(ONE), replace(came(ONE), properties=BasicProperties())])
    assert broken(ledger) == [Rule.NEVER_PUBLISHED]


# --- order ---


def test_messages_of_one_publisher_in_another_order_are_out_of_order(ledger: Ledger) -> None:
    publish(ledger, ONE, TWO, THREE)
    ledger.check(QUEUE, [came(ONE), came(THREE), came(TWO)])
    assert broken(ledger) == [Rule.OUT_OF_ORDER]


def test_order_between_publishers_is_free(ledger: Ledger) -> None:
    other = message(7, publisher="other")
    publish(ledger, other, ONE, TWO)
    ledger.check(QUEUE, [came(ONE), came(other), came(TWO)])
    assert ledger.verdict() == ""


# --- what it looks like ---


WRONG: dict[str, Delivery] = {
    "shorter body": replace(came(ONE), body=BODY[:-1]),
    "other body": replace(came(ONE), body=BODY[::-1]),
    "other property": replace(came(ONE), properties=replace(ONE.properties, app_id="x")),
    "other delivery mode": replace(came(ONE), properties=replace(ONE.properties, delivery_mode=TRANSIENT)),
    "other exchange": replace(came(ONE), method=replace(came(ONE).method, exchange="y")),
    "other key": replace(came(ONE), method=replace(came(ONE).method, routing_key="k")),
}


@pytest.mark.parametrize("delivery", WRONG.values(), ids=WRONG.keys())
def test_message_that_is_not_as_published_is_corrupted(ledger: Ledger, delivery: Delivery) -> None:
    publish(ledger, ONE)
    ledger.check(QUEUE, [delivery])
    assert broken(ledger) == [Rule.CORRUPTED]


def test_corruption_is_noticed_at_once_when_delivered(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, replace(came(ONE), body=b""))
    assert broken(ledger) == [Rule.CORRUPTED]


# --- acks ---


@pytest.mark.parametrize("there", [True, False])
def test_message_whose_ack_was_in_flight_may_be_there_or_not(ledger: Ledger, *, there: bool) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE))
    ledger.leave(QUEUE, [ONE.id])
    ledger.check(QUEUE, [came(ONE, redelivered=True)] if there else [])
    assert ledger.verdict() == ""


def test_message_whose_ack_was_handled_must_not_be_there(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE))
    ledger.leave(QUEUE, [ONE.id])
    ledger.gone(QUEUE, [ONE.id])
    ledger.check(QUEUE, [came(ONE, redelivered=True)])
    assert broken(ledger) == [Rule.CAME_BACK]


def test_message_whose_ack_was_handled_must_not_be_delivered(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE))
    ledger.gone(QUEUE, [ONE.id])
    ledger.deliver(QUEUE, came(ONE, redelivered=True))
    assert broken(ledger) == [Rule.CAME_BACK]


def test_message_that_is_delivered_again_although_an_ack_was_sent_must_be_there(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE))
    ledger.leave(QUEUE, [ONE.id])
    ledger.deliver(QUEUE, came(ONE, redelivered=True))
    ledger.check(QUEUE, [])
    assert broken(ledger) == [Rule.LOST]


def test_late_delivery_says_nothing_about_an_ack_that_was_sent_meanwhile(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE, redelivered=True))
    ledger.leave(QUEUE, [ONE.id])
    ledger.deliver(QUEUE, came(ONE), late=True)
    ledger.check(QUEUE, [])
    assert ledger.verdict() == ""


def test_messages_of_a_deleted_queue_must_not_be_there(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.leave_all(QUEUE)
    ledger.all_gone(QUEUE)
    publish(ledger, TWO)
    ledger.check(QUEUE, [came(ONE), came(TWO)])
    assert broken(ledger) == [Rule.CAME_BACK]


# --- the mark ---


def test_delivered_message_that_comes_back_without_the_mark_is_wrong(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE))
    ledger.check(QUEUE, [came(ONE)])
    assert broken(ledger) == [Rule.NOT_MARKED]


def test_second_delivery_without_the_mark_is_wrong(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.deliver(QUEUE, came(ONE))
    ledger.deliver(QUEUE, came(ONE))
    assert broken(ledger) == [Rule.NOT_MARKED]


def test_what_a_check_has_seen_counts_as_delivered(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.check(QUEUE, [came(ONE)])
    ledger.deliver(QUEUE, came(ONE))
    assert broken(ledger) == [Rule.NOT_MARKED]


def test_message_that_was_never_delivered_must_not_be_marked(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.check(QUEUE, [came(ONE, redelivered=True)])
    assert broken(ledger) == [Rule.WRONGLY_MARKED]


def test_as_many_as_a_consumer_may_not_have_received_can_be_marked(ledger: Ledger) -> None:
    publish(ledger, ONE, TWO)
    ledger.open_window(QUEUE, 1)
    ledger.check(QUEUE, [came(ONE, redelivered=True), came(TWO)])
    assert ledger.verdict() == ""


def test_more_marked_than_a_consumer_may_not_have_received_is_wrong(ledger: Ledger) -> None:
    publish(ledger, ONE, TWO)
    ledger.open_window(QUEUE, 1)
    ledger.check(QUEUE, [came(ONE, redelivered=True), came(TWO, redelivered=True)])
    assert broken(ledger) == [Rule.WRONGLY_MARKED]


def test_those_delivered_with_an_unexplained_mark_count_even_if_acked(ledger: Ledger) -> None:
    publish(ledger, ONE, TWO)
    ledger.open_window(QUEUE, 1)
    ledger.deliver(QUEUE, came(ONE, redelivered=True))
    ledger.gone(QUEUE, [ONE.id])
    ledger.check(QUEUE, [came(TWO, redelivered=True)])
    assert broken(ledger) == [Rule.WRONGLY_MARKED]


def test_consumer_that_received_all_explains_nothing(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.open_window(QUEUE, 5)
    ledger.close_window(QUEUE, 5)
    ledger.check(QUEUE, [came(ONE, redelivered=True)])
    assert broken(ledger) == [Rule.WRONGLY_MARKED]


def test_window_is_used_up_by_a_check(ledger: Ledger) -> None:
    publish(ledger, ONE)
    ledger.open_window(QUEUE, 1)
    ledger.check(QUEUE, [came(ONE, redelivered=True)])
    publish(ledger, TWO)
    ledger.check(QUEUE, [came(ONE, redelivered=True), came(TWO, redelivered=True)])
    assert broken(ledger) == [Rule.WRONGLY_MARKED]


# --- counts ---


@pytest.mark.parametrize("count", [2, 3, 4])
def test_count_between_what_must_and_what_may_be_there_is_right(ledger: Ledger, count: int) -> None:
    publish_for_counting(ledger)
    ledger.check_count(QUEUE, count)
    assert ledger.verdict() == ""


@pytest.mark.parametrize("count", [1, 5])
def test_any_other_count_is_wrong(ledger: Ledger, count: int) -> None:
    publish_for_counting(ledger)
    ledger.check_count(QUEUE, count)
    assert broken(ledger) == [Rule.MISCOUNTED]


def publish_for_counting(ledger: Ledger) -> None:
    """Two must be there, one may be since its ack is in flight, one may be since it is not confirmed."""
    publish(ledger, ONE, TWO, THREE, message(4))
    publish(ledger, message(5), confirmed=False)
    ledger.leave(QUEUE, [ONE.id])
    ledger.gone(QUEUE, [TWO.id])


# --- definitions ---


EXCHANGE, KEPT, PASSING = ExchangeThing("x", "direct"), QueueThing("q"), QueueThing("p", durable=False)
BINDING = BindingThing(EXCHANGE, KEPT, "k")


@pytest.fixture
def definitions() -> Definitions:
    definitions = Definitions()
    for thing in (EXCHANGE, KEPT, PASSING, BINDING):
        definitions.declared(thing)
    return definitions


@pytest.mark.parametrize("thing", [EXCHANGE, KEPT, BINDING], ids=["exchange", "queue", "binding"])
def test_what_was_declared_must_be_there(definitions: Definitions, thing: QueueThing) -> None:
    assert [violation.rule for violation in definitions.check({thing: False})] == [Rule.UNDEFINED]


@pytest.mark.parametrize("thing", [EXCHANGE, KEPT, BINDING], ids=["exchange", "queue", "binding"])
def test_what_was_deleted_must_not_be_there(definitions: Definitions, thing: QueueThing) -> None:
    definitions.delete(thing)
    definitions.absent(thing)
    assert [violation.rule for violation in definitions.check({thing: True})] == [Rule.REDEFINED]


def test_bindings_go_with_their_queue(definitions: Definitions) -> None:
    definitions.delete(KEPT)
    definitions.absent(KEPT)
    definitions.declared(KEPT)
    assert [violation.rule for violation in definitions.check({BINDING: True})] == [Rule.REDEFINED]


@pytest.mark.parametrize("there", [True, False])
def test_what_was_changing_may_be_there_or_not_but_stays_so(definitions: Definitions, *, there: bool) -> None:
    definitions.delete(EXCHANGE)
    assert definitions.check({EXCHANGE: there, BINDING: there}) == []
    assert len(definitions.check({EXCHANGE: not there, BINDING: not there})) == 2


def test_what_is_transient_must_not_be_there_after_a_restart(definitions: Definitions) -> None:
    definitions.restart()
    found: dict[Thing, bool] = {PASSING: True, KEPT: True}
    assert [str(violation) for violation in definitions.check(found)] == [
        "REDEFINED: transient queue 'p' is there again"
    ]
