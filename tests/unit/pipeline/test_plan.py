"""Plans: every offset in exactly one slice, whatever the segments are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.pipeline.segments.log import Contents, QueueRef, Slice, SourceSegment
from warren.pipeline.segments.plan import Marks, Partition, Span, limit, limit_bytes, plan

MIB = 1 << 20


def contents(sizes: list[tuple[int, int]], *, first: int = 0) -> Contents:
    """A stream with a segment for each pair of a number of messages and of bytes."""
    segments, offset = [], first
    for count, size in sizes:
        segment = SourceSegment(
            base=offset + 1, size_bytes=size, first_offset=offset, end_offset=offset + count
        )
        segments.append(segment)
        offset += count
    return Contents(QueueRef("/", "s", "stream"), first, offset, tuple(segments))


def slices_of(partitions: list[Partition]) -> list[Slice]:
    return [each for partition in partitions for portion in partition.portions for each in portion.slices]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1000), st.integers(32, 200 * MIB)), max_size=8),
    first=st.integers(0, 50),
    bounds=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
    min_partitions=st.integers(0, 9),
    can_locate=st.booleans(),
)
def test_every_offset_is_in_exactly_one_slice(
    sizes: list[tuple[int, int]], first: int, bounds: tuple[int, int], min_partitions: int, can_locate: bool
) -> None:
    whole = contents(sizes, first=first)
    start, end = min(bounds), max(bounds)
    partitions = plan([Span(whole, start, end)], min_partitions=min_partitions, can_locate=can_locate)
    slices = slices_of(partitions)
    planned = [offset for each in slices for offset in range(each.first_offset, each.end_offset)]
    assert planned == list(range(max(start, first), min(end, whole.next_offset)))
    for each in slices:
        assert each.segment.first_offset <= each.first_offset < each.end_offset <= each.segment.end_offset


def test_small_segments_share_a_partition_and_large_ones_are_cut() -> None:
    small = contents([(100, MIB)] * 64)
    large = contents([(100_000, 128 * MIB)])
    assert len(plan([Span(small, 0, 6400)], can_locate=True)) == 2
    assert len(plan([Span(large, 0, 100_000)], can_locate=True)) == 4
    assert len(plan([Span(large, 0, 100_000)], can_locate=False)) == 1


def test_there_are_as_many_partitions_as_asked_for() -> None:
    one = contents([(1000, MIB)])
    assert len(plan([Span(one, 0, 1000)], min_partitions=10, can_locate=False)) >= 10
    assert len(plan([Span(one, 0, 3)], min_partitions=10, can_locate=False)) == 3


def test_slice_begins_where_the_newest_segment_ended_at_an_earlier_look() -> None:
    marks = Marks()
    marks.note(contents([(10, 1000), (5, 600)]).ends)
    grown = contents([(10, 1000), (25, 2600)])
    marks.note(grown.ends)
    (part,) = slices_of(plan([Span(grown, 17, 35)], can_locate=False, marks=marks))
    assert (part.at, part.at_offset, part.above) == (600, 15, 15)


def test_marks_of_another_segment_are_not_used() -> None:
    marks = Marks()
    marks.note(contents([(10, 1000)]).ends)
    spans = [Span(contents([(10, 1000), (5, 600)]), 12, 15)]
    (part,) = slices_of(plan(spans, can_locate=False, marks=marks))
    assert (part.at, part.above) == (32, 10)


def test_small_queues_share_a_task_and_large_ones_do_not() -> None:
    small, large = contents([(20, 2000)]), contents([(100_000, 20 * MIB)])
    assert len(plan([Span(small, 0, 20)] * 100, can_locate=False)) == 2
    assert len(plan([Span(large, 0, 100_000)] * 3, can_locate=False)) == 3
    mixed = [Span(small, 0, 20), Span(large, 0, 100_000), Span(small, 0, 20)]
    assert sorted(len(partition.portions) for partition in plan(mixed, can_locate=False)) == [1, 1, 1]


def test_sharing_leaves_as_many_partitions_as_asked_for() -> None:
    small = [Span(contents([(20, 2000)]), 0, 20)] * 100
    assert 10 <= len(plan(small, min_partitions=10, can_locate=False)) <= 12


behind = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1
)


@given(behind, st.integers(1, 120))
def test_limit_is_kept_and_something_goes_on(given: dict[str, tuple[int, int]], most: int) -> None:
    start = {name: at for name, (at, _) in given.items()}
    latest = {name: at + more for name, (at, more) in given.items()}
    end = limit(start, latest, most)
    steps = {name: end[name] - start[name] for name in start}
    assert all(0 <= steps[name] <= latest[name] - start[name] for name in start)
    assert sum(steps.values()) == min(most, sum(latest.values()) - sum(start.values()))


def test_limit_is_spread_by_how_far_each_is_behind() -> None:
    assert limit({"a": 0, "b": 0}, {"a": 300, "b": 100}, 40) == {"a": 30, "b": 10}


def test_queue_that_is_behind_by_little_does_not_wait_for_one_that_is_behind_by_much() -> None:
    assert limit({"a": 0, "b": 0}, {"a": 1_000_000, "b": 1}, 10) == {"a": 9, "b": 1}
    many = {f"q{i}": 1 for i in range(5)} | {"much": 100}
    first = limit(dict.fromkeys(many, 0), many, 3)
    assert (sum(first.values()), first["much"]) == (3, 1)


@given(
    sizes=st.lists(
        st.lists(st.tuples(st.integers(1, 1000), st.integers(32, 20 * MIB)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    start=st.integers(0, 500),
    most=st.integers(1, 50 * MIB),
)
def test_limit_in_bytes_is_kept_but_for_a_message_of_each_queue(
    sizes: list[list[tuple[int, int]]], start: int, most: int
) -> None:
    found = {str(i): contents(each) for i, each in enumerate(sizes)}
    begin = {name: min(start, each.next_offset) for name, each in found.items()}
    latest = {name: each.next_offset for name, each in found.items()}
    end = limit_bytes(found, begin, latest, most)
    taken = one_more = 0
    for name, each in found.items():
        assert begin[name] <= end[name] <= latest[name]
        assert end[name] > begin[name] or begin[name] == latest[name]
        taken += about_bytes(each, begin[name], end[name])
        one_more += max(
            part.size_bytes // (part.end_offset - part.first_offset) + 1 for part in each.segments
        )
    assert end == latest or taken <= most + one_more


def about_bytes(whole: Contents, start: int, end: int) -> int:
    return sum(
        segment.size_bytes
        * max(0, min(end, segment.end_offset) - max(start, segment.first_offset))
        // (segment.end_offset - segment.first_offset)
        for segment in whole.segments
    )


def test_limit_in_bytes_is_spread_by_how_many_each_is_behind() -> None:
    found = {"a": contents([(100, 30_000)]), "b": contents([(100, 10_000)])}
    assert limit_bytes(found, {"a": 0, "b": 0}, {"a": 100, "b": 100}, 20_000) == {"a": 50, "b": 50}
    assert limit_bytes(found, {"a": 0, "b": 50}, {"a": 100, "b": 100}, 7_000) == {"a": 20, "b": 60}
