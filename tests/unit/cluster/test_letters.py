from __future__ import annotations

from tests.unit.cluster.letter_nodes import SENDER, Cluster, LedQueue, message
from warren.broker.post import Postbox
from warren.cluster.config import RunId, StoreId
from warren.cluster.letters import (
    FRAME_LETTERS_MAX,
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    SILENCE_SECONDS_MAX,
    WAITING_MAX,
    Line,
)
from warren.cluster.messages import LettersDone

B, C = StoreId("b"), StoreId("c")


def begun(*numbers: int) -> tuple[Cluster, Line, list[int]]:
    """B leads the queue, and letters are on their way; the list gets the numbers of those that are safe."""
    cluster = Cluster("b", "c")
    cluster.link_up(B)
    cluster.link_up(C)
    cluster.lead(B)
    line = cluster.open()
    safe: list[int] = []
    for number in numbers:
        line.put(message(number))
        line.when_safe(safe.append)
    cluster.pass_time(0)
    return cluster, line, safe


def queue_of(cluster: Cluster) -> LedQueue:
    assert cluster.leader is not None
    assert cluster.leader.queue is not None
    return cluster.leader.queue


def test_line_is_a_postbox() -> None:
    box: Postbox = Cluster().open()
    assert (box.gathering, box.behind) == (0, False)


def test_letter_is_safe_when_the_leader_says_so_and_not_before() -> None:
    cluster, line, safe = begun(10, 11)
    cluster.deliver(B)
    cluster.answer(B)
    assert queue_of(cluster).bodies == [10, 11]
    assert safe == []
    cluster.commit()
    cluster.answer(B)
    assert safe == [1, 2]
    assert not line.unsettled
    assert cluster.sender.letters == cluster.sender.bytes == 0


def test_letters_of_a_turn_go_in_one_frame() -> None:
    cluster, _, _ = begun(*range(FRAME_LETTERS_MAX + 1))
    assert cluster.has_work is False
    assert [len(frame.letters) for frame in cluster.there[B]] == [FRAME_LETTERS_MAX, 1]


def test_refused_letter_is_done_with() -> None:
    cluster, line, safe = begun()
    queue_of(cluster).refuses.add(1)
    line.put(message(1))
    line.when_safe(safe.append)
    cluster.pass_time(0)
    cluster.deliver(B)
    cluster.answer(B)
    assert safe == [1]


def test_refused_letter_does_not_overtake_one_that_is_not_safe() -> None:
    cluster, line, safe = begun(1)
    queue_of(cluster).refuses.add(2)
    cluster.deliver(B)
    line.put(message(2))
    line.when_safe(safe.append)
    cluster.pass_time(0)
    cluster.deliver(B)
    while cluster.back[B]:
        cluster.answer(B)
    assert safe == []
    cluster.commit()
    cluster.answer(B)
    assert safe == [1, 2]


def test_lost_frames_are_sent_again_over_the_next_link() -> None:
    cluster, _, safe = begun(1, 2)
    cluster.link_down(B)
    cluster.pass_time(0.1)
    assert not cluster.there[B]
    cluster.link_up(B)
    cluster.deliver(B)
    cluster.commit()
    cluster.answer(B)
    cluster.answer(B)
    assert safe == [1, 2]
    assert cluster.in_queue() == [1, 2]


def test_what_the_same_leader_has_is_left_out_when_it_comes_again() -> None:
    cluster, line, _ = begun(1, 2)
    cluster.deliver(B)
    cluster.link_up(B)
    line.put(message(3))
    cluster.pass_time(0)
    while cluster.there[B]:
        cluster.deliver(B)
    assert queue_of(cluster).bodies == [1, 2, 3]


def test_lost_answer_is_said_again_over_the_next_link() -> None:
    cluster, _, safe = begun(1)
    cluster.deliver(B)
    cluster.commit()
    cluster.link_back_up(B)
    assert safe == []
    cluster.answer(B)
    assert safe == [1]


def test_letters_wait_while_nobody_leads() -> None:
    cluster, line, safe = begun(1)
    cluster.lead(None)
    cluster.pass_time(1)
    frames = cluster.frames
    line.put(message(2))
    for _ in range(10):
        cluster.pass_time(1)
    assert cluster.frames == frames, "nothing is sent to nobody"
    cluster.lead(C)
    cluster.settle()
    assert cluster.in_queue() == [1, 2]
    assert safe == [1]


def test_next_leader_gets_what_was_not_safe() -> None:
    cluster, line, safe = begun(1)
    cluster.deliver(B)
    cluster.commit()
    cluster.answer(B)
    cluster.answer(B)
    line.put(message(2))
    line.when_safe(safe.append)
    cluster.pass_time(0)
    cluster.deliver(B)
    cluster.lead(C)
    cluster.settle()
    assert cluster.in_queue() == [1, 2]
    assert safe == [1, 2]


def test_answer_of_an_earlier_leader_counts() -> None:
    cluster, _, safe = begun(1)
    cluster.deliver(B)
    cluster.commit()
    cluster.lead(C)
    cluster.pass_time(0.1)
    while cluster.back[B]:
        cluster.answer(B)
    assert safe == [1]


def test_node_that_does_not_lead_is_not_asked_in_a_tight_loop() -> None:
    cluster, _, safe = begun(1)
    cluster.receivers[B].queue = None  # it does not know yet
    for _ in range(400):
        cluster.pass_time(0.01)
        cluster.deliver(B)
        cluster.answer(B)
    assert cluster.frames < 12
    cluster.receivers[B].queue = LedQueue()
    cluster.settle()
    assert safe == [1]


def test_silence_has_a_line_sent_again() -> None:
    cluster, _, safe = begun(1)
    cluster.there[B].clear()
    cluster.pass_time(SILENCE_SECONDS_MAX)
    cluster.deliver(B)
    cluster.commit()
    while cluster.back[B]:
        cluster.answer(B)
    assert safe == [1]


def test_frames_behind_a_gap_are_not_taken() -> None:
    cluster, _, _ = begun(*range(FRAME_LETTERS_MAX * 2))
    cluster.there[B].popleft()
    cluster.deliver(B)
    assert queue_of(cluster).bodies == []
    assert cluster.back[B][-1].is_here is False
    cluster.settle()
    assert cluster.in_queue() == list(range(FRAME_LETTERS_MAX * 2))


def test_so_many_letters_and_bytes_are_in_flight_at_most() -> None:
    cluster, line, safe = begun(*range(IN_FLIGHT_MAX + 1))
    assert sum(len(frame.letters) for frame in cluster.there[B]) == IN_FLIGHT_MAX
    other = cluster.open()
    for number in range(9):
        other.put(message(number, IN_FLIGHT_BYTES_MAX // 4))
    cluster.pass_time(0)
    assert sum(len(frame.letters) for frame in cluster.there[B]) == IN_FLIGHT_MAX
    cluster.settle()
    assert len(safe) == IN_FLIGHT_MAX + 1
    assert not line.unsettled
    assert not other.unsettled
    flight = cluster.sender.in_flight[B]
    assert (flight.letters, flight.bytes, flight.stopped) == (0, 0, {})


def test_line_without_a_leader_does_not_stop_others() -> None:
    cluster, _, _ = begun()
    lost = cluster.open()
    ways = {lost: None}
    find = cluster.sender.find
    cluster.sender.find = lambda line: ways.get(line) if line in ways else find(line)
    for number in range(IN_FLIGHT_MAX * 2):
        lost.put(message(number))
    line = cluster.open()
    safe: list[int] = []
    line.put(message(1))
    line.when_safe(safe.append)
    cluster.settle()
    assert safe == [1]


def test_post_is_full_while_too_much_waits() -> None:
    cluster = Cluster("b")
    line = cluster.open()
    for number in range(WAITING_MAX):
        assert not cluster.sender.is_full
        line.put(message(number))
    assert cluster.sender.is_full
    line.close()
    assert not cluster.sender.is_full


def test_those_who_wait_for_a_line_that_is_closed_are_told() -> None:
    cluster, line, safe = begun(1, 2)
    ended: list[str] = []
    line.when_safe(safe.append, lambda: ended.append("told"))
    line.close()
    assert ended == [], "in a turn to come"
    cluster.pass_time(0)
    assert ended == ["told"]
    cluster.settle()
    assert safe == []
    assert cluster.sender.in_flight[B].letters == 0


def test_answers_that_make_no_sense_are_ignored() -> None:
    cluster, line, safe = begun(1)
    cluster.sender.done(B, LettersDone(line.id, 2, is_here=True), 0)
    cluster.sender.done(B, LettersDone(999, 1, is_here=True), 0)
    assert safe == []


def test_lines_of_an_earlier_run_and_of_deleted_queues_are_forgotten() -> None:
    cluster, _, _ = begun(1)
    cluster.deliver(B)
    receiver = cluster.receivers[B].letters
    receiver.link_up(SENDER, RunId("run"))
    assert len(receiver.inboxes) == 1
    receiver.link_up(SENDER, RunId("next"))
    assert not receiver.inboxes
    cluster.link_up(B)
    cluster.deliver(B)
    assert len(receiver.inboxes) == 1
    queue_of(cluster).deleted = True
    receiver.sweep()
    assert not receiver.inboxes
