# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A consumer's place in a stream. Only records that are written and synced are read: an offset that a client has seen
must not stand for another message after a power cut. Of a stream that is replicated, only those are read that all
members have synced: the others may be gone when this node does not lead any more.

Readers near the end share one window, so that a thousand of them read new records once, and hold no memory while they
wait. A reader that is far behind has a window of its own.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

from warren.amqp.properties import decode_properties
from warren.amqp.table import encode_name
from warren.storage.format import UnknownVersion
from warren.storage.stream_segment import bits_of

from warren.amqp.traits cimport add_headers
from warren.amqp.wire cimport get32, put64
from warren.broker.message cimport Message
from warren.storage.cursor cimport NOTHING, Cursor
from warren.storage.format cimport (
    FLAG_DIED, FLAG_PERSISTENT, HEADER_BYTES, RECORD_HEAD_BYTES, SOME_UNFILTERED, ChunkEntry, RecordHead, same_or_new,
)
from warren.storage.segment cimport Segment, index_beyond
from warren.storage.stream_segment cimport Chunks, StreamSegment, may_have
from warren.storage.window cimport Window

cdef enum:
    NOTHING_YET = -1
    NOT_YET_FOUND = -2
    NOWHERE = -1
    PASSED_BYTES_MAX = 512 * 1024   # before others have their turn
    NEAR_BYTES = 256 * 1024

STREAM_OFFSET = encode_name("x-stream-offset")
cdef bytes OFFSET_FIELD = STREAM_OFFSET + b"l" + bytes(8)


cdef class Reach:
    """How far a replicated stream may be read. What each attribute is for is in stream_reader.pxd."""

    def __init__(self, uint64_t position, uint64_t base, Py_ssize_t end):
        self.position = position
        self.base = base
        self.end = end

    cpdef Py_ssize_t within(self, Segment segment):
        """How many bytes of a segment may be read."""
        if segment.base < self.base:
            return segment.written
        return min(self.end, segment.written) if segment.base == self.base else 0


cdef class LogReader(StreamReader):
    """What each attribute is for is in stream_reader.pxd."""

    def __init__(
        self, list segments, Window shared, Cursor cursor, uint64_t position, wanted, Reach reach=None
    ):
        self.reach = reach
        self.segments = segments
        self.shared = shared
        self.cursor = cursor
        self.wanted = position
        self.filter = wanted
        if wanted is not None:
            self.bits = [bits_of(values) for values in wanted.alternatives]
            self.match_unfiltered = wanted.match_unfiltered

    cpdef uint64_t next_position(self):
        return self.wanted

    cpdef Py_ssize_t ready(self) except? -3:
        cdef Cursor cursor = self.cursor
        cdef StreamSegment segment
        cdef Py_ssize_t passed = 0, length = 0
        cdef const uint8_t* p
        cdef uint64_t position
        while passed < PASSED_BYTES_MAX:
            segment = <StreamSegment?>cursor.segment if cursor.segment is not None else None
            if segment is None or segment.is_dropped():
                if not self.enter():
                    return NOTHING_YET
                continue
            if cursor.offset >= segment.written:
                if not self.go_to_next_segment():
                    return NOTHING_YET
                continue
            if self.filter is not None:
                length = self.skip_chunks()
                if length:
                    passed += length
                    continue
            self.share_window(segment)
            position = cursor.position(self.wanted - 1)
            if position == NOTHING or cursor.offset >= segment.written:
                continue
            if self.reach is not None and position > self.reach.position:
                cursor.window = None
                return NOTHING_YET
            p = cursor.record(&length)
            if self.filter is None or self.matches(p):
                return body_size(p)
            cursor.above = position
            cursor.offset += length
            self.wanted = position + 1
            passed += length
        return NOT_YET_FOUND

    cdef share_window(self, StreamSegment segment):
        cdef bint near = not segment.is_closed() and segment.written - self.cursor.offset < NEAR_BYTES
        if near:
            self.cursor.window = self.shared
            self.cursor.sound_at = NOWHERE
        elif self.cursor.window is self.shared:
            self.cursor.window = None

    cpdef Message take(self):
        cdef Cursor cursor = self.cursor
        cdef Py_ssize_t length = 0, size
        cdef const uint8_t* p = cursor.record(&length)
        cdef const RecordHead* head = <const RecordHead*>p
        cdef const uint8_t* at = p + RECORD_HEAD_BYTES
        cdef Message like = cursor.like, message = Message.__new__(Message)
        size = 1 + at[0]
        message.exchange = same_or_new(like.exchange if like is not None else None, at, size)
        at += size
        size = 1 + at[0]
        message.routing_key = same_or_new(like.routing_key if like is not None else None, at, size)
        at += size
        message.properties = self.with_offset(at, head.properties_length, head.position - 1)
        at += head.properties_length
        message.body = cursor.window.body_at(p)
        if message.body is None:
            message.body = PyBytes_FromStringAndSize(<char*>at, p + head.length - at)
        message.persistent = head.flags & FLAG_PERSISTENT != 0
        message.died = head.flags & FLAG_DIED != 0
        message.time_ms = head.time_ms
        message.expiration_ms = -1
        cursor.above = head.position
        cursor.offset += length
        cursor.like = message
        self.wanted = head.position + 1
        cursor.let_go_of_large()
        return message

    cdef bint enter(self) except -1:
        """Go to where the wanted record is, or the first one that is there; whether there is any."""
        cdef StreamSegment segment
        cdef Py_ssize_t index = max(index_beyond(self.segments, self.wanted) - 1, 0)
        cdef Chunks chunks
        cdef ChunkEntry* chunk
        if index >= len(self.segments):
            return False
        segment = self.segments[index]
        self.wanted = max(self.wanted, segment.base)
        self.cursor.move(segment, 0)
        self.cursor.window = None
        chunks = chunks_of(segment, self.cursor.problems)
        self.chunks = chunks if self.filter is not None else None
        if chunks is not None and chunks.count():
            chunk = chunks.at(chunks.of_position(self.wanted - segment.base))
            self.cursor.seek(segment, chunk.offset, segment.base + chunk.relative - 1)
        return True

    cdef bint go_to_next_segment(self) except -1:
        """Whether there is one: the present one is read to the end of what is safe."""
        cdef StreamSegment segment = <StreamSegment>self.cursor.segment
        cdef Py_ssize_t index
        if segment.end > segment.written or not segment.is_closed():
            self.cursor.window = None
            return False
        index = index_beyond(self.segments, segment.base)
        if index >= len(self.segments):
            self.cursor.window = None
            return False
        segment = self.segments[index]
        self.cursor.move(segment, 0)
        self.wanted = max(self.wanted, segment.base)
        if self.filter is not None:
            self.chunks = chunks_of(segment, self.cursor.problems)
        return True

    # --- filters ---

    cdef Py_ssize_t skip_chunks(self) except -1:
        """Past the chunk in which the cursor is, if nothing in it can match: how many bytes; 0 if something can."""
        cdef Cursor cursor = self.cursor
        cdef Py_ssize_t index, offset = cursor.offset if cursor.offset else HEADER_BYTES, end
        cdef ChunkEntry* chunk
        if self.chunks is None or self.chunks.count() == 0:
            return 0
        index = self.chunks.of_offset(offset)
        chunk = self.chunks.at(index)
        if chunk.flags & SOME_UNFILTERED and self.match_unfiltered:
            return 0
        for bits in self.bits:
            if may_have(chunk, bits):
                return 0
        if index + 1 < self.chunks.count():
            end = self.chunks.at(index + 1).offset
            if end > cursor.segment.written:
                return 0
            cursor.seek(cursor.segment, end, cursor.segment.base + self.chunks.at(index + 1).relative - 1)
        elif cursor.segment.is_closed() and cursor.segment.end == cursor.segment.written:
            cursor.seek(cursor.segment, cursor.segment.end, cursor.segment.last)
        else:
            return 0
        self.wanted = max(self.wanted, cursor.above + 1)
        return max(end_of_step(cursor.offset - offset), 1)

    cdef bint matches(self, const uint8_t* p) except -1:
        cdef Py_ssize_t size = (<const RecordHead*>p).properties_length
        p = properties_of(p)
        if self.known is None or PyBytes_GET_SIZE(self.known) != size or memcmp(PyBytes_AS_STRING(self.known), p, size):
            self.known = PyBytes_FromStringAndSize(<char*>p, size)
            self.known_matches = self.filter.matches(self.known)
        return self.known_matches

    # --- what is delivered ---

    cdef bytes with_offset(self, const uint8_t* properties, Py_ssize_t size, uint64_t offset):
        """The properties with the header that says the offset: made once for the same properties, and copied."""
        cdef bytes result
        if self.plain is None or PyBytes_GET_SIZE(self.plain) != size or memcmp(
            PyBytes_AS_STRING(self.plain), properties, size
        ):
            self.plain = PyBytes_FromStringAndSize(<char*>properties, size)
            self.template = add_headers(without_offset(self.plain), OFFSET_FIELD, False)
            self.template_at = end_of_headers(self.template) - 8
        result = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.template), PyBytes_GET_SIZE(self.template))
        put64(<uint8_t*>PyBytes_AS_STRING(result) + self.template_at, offset)
        return result


cdef Py_ssize_t end_of_headers(bytes properties) noexcept:
    """Where the last header, which is the one that was added, ends: before the table come two short strings."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(properties)
    cdef Py_ssize_t at = 2
    if p[0] & 0x80:
        at += 1 + p[at]
    if p[0] & 0x40:
        at += 1 + p[at]
    return at + 4 + <Py_ssize_t>get32(p + at)


def without_offset(bytes properties):
    """A publisher's own header of that name must not stand beside ours."""
    if STREAM_OFFSET not in properties:
        return properties
    decoded = decode_properties(properties)
    decoded.headers = {k: v for k, v in (decoded.headers or {}).items() if k != "x-stream-offset"}
    return decoded.encode()


cdef inline Py_ssize_t end_of_step(Py_ssize_t passed) noexcept:
    """To pass by a chunk costs next to nothing, compared with reading it."""
    return passed // 64


cdef inline const uint8_t* properties_of(const uint8_t* p) noexcept:
    p += RECORD_HEAD_BYTES
    p += 1 + p[0]
    return p + 1 + p[0]


cdef inline Py_ssize_t body_size(const uint8_t* p) noexcept:
    cdef const RecordHead* head = <const RecordHead*>p
    return head.length - head.properties_length - (properties_of(p) - p)


def chunks_of(StreamSegment segment, problems):
    """The chunks of a segment; None if there are none to be read: then all of it is read."""
    try:
        return segment.read_chunks()
    except (OSError, ValueError, UnknownVersion) as error:
        problems.warn("chunks cannot be read", file=segment.path + ".chunks", error=str(error))
        return None


def position_at(list segments, Cursor cursor, uint64_t time_ms):
    """Of the first safe record that came at a time or later; None if there is none yet."""
    cdef StreamSegment segment
    cdef Chunks chunks
    cdef ChunkEntry* chunk
    cdef Py_ssize_t length = 0
    cdef const uint8_t* p
    cdef uint64_t position
    for segment in segments:
        if segment.newest_ms() < time_ms or segment.written == 0:
            continue
        cursor.move(segment, 0)
        chunks = chunks_of(segment, cursor.problems)
        if chunks is not None and chunks.count():
            chunk = chunks.at(chunks.before_time(time_ms))
            cursor.seek(segment, chunk.offset, segment.base + chunk.relative - 1)
        while cursor.offset < segment.written:
            position = cursor.position()
            if position == NOTHING or cursor.offset >= segment.written:
                break
            p = cursor.record(&length)
            if (<const RecordHead*>p).time_ms >= time_ms:
                return position
            cursor.above = position
            cursor.offset += length
    return None
