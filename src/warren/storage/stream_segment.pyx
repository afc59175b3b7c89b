# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A segment of a stream. Beside its records it knows where to look for a position, a time, or what a filter wants.

Records are noted by chunks of 64 KiB or a little more. A reader that looks for a position or a time walks through
one chunk at most, and a filter skips the chunks in which nothing can match. See format.pyx for the file that this
becomes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pathlib import Path

from warren.amqp.table import decode_value
from warren.broker.stream_filter import FILTER_VALUE, filter_values
from warren.storage.files import replace_derived
from warren.storage.format import CHUNKS_MAGIC, check_header, count_and_end, encode_header, uint64_at

from warren.amqp.traits cimport header_of
from warren.broker.message cimport Message
from warren.storage.checksum cimport crc32c
from warren.storage.disk cimport Buffer
from warren.storage.format cimport (
    CHUNKS_MORE_BYTES, FILTER_BYTES, FILTER_WORDS, HEADER_BYTES, RECORD_ALIGNMENT, RECORD_HEAD_BYTES, SOME_UNFILTERED,
    ChunkEntry, RecordHead, find_record, record_length,
)
from warren.storage.segment cimport Segment

cdef enum:
    CHUNK_BYTES = 64 * 1024
    BITS_A_VALUE = 3

UNFILTERED = b""


# --- values ---


cpdef bytes values_of(bytes properties):
    """The bits of a message's filter values; empty if it has none."""
    cdef bytes encoded = header_of(properties, FILTER_VALUE)
    if encoded is None:
        return UNFILTERED
    return bits_of(filter_values(decode_value(encoded)))


def bits_of(values):
    """A Bloom filter in which these values are."""
    cdef uint64_t bits[FILTER_WORDS]
    cdef uint32_t hashed, bit
    cdef int i
    cdef bytes text
    if not values:
        return UNFILTERED
    memset(bits, 0, FILTER_BYTES)
    for value in values:
        text = value.encode("utf-8", "surrogateescape")
        hashed = crc32c(<const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        for i in range(BITS_A_VALUE):
            bit = (hashed >> (9 * i)) & 511
            bits[bit >> 6] |= <uint64_t>1 << (bit & 63)
    return PyBytes_FromStringAndSize(<char*>bits, FILTER_BYTES)


cdef bint may_have(const ChunkEntry* chunk, bytes values) noexcept:
    """Whether some record may have all these values."""
    cdef const uint64_t* wanted = <const uint64_t*>PyBytes_AS_STRING(values)
    cdef int i
    for i in range(FILTER_WORDS):
        if chunk.values[i] & wanted[i] != wanted[i]:
            return False
    return True


# --- chunks ---


cdef class Chunks:
    """The chunks of one segment, in order."""

    def __init__(self, bytes data=b""):
        self.buffer = Buffer()
        if data:
            memcpy(self.buffer.room(PyBytes_GET_SIZE(data)), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef Py_ssize_t count(self) noexcept:
        return self.buffer.size // <Py_ssize_t>sizeof(ChunkEntry)

    cdef ChunkEntry* at(self, Py_ssize_t index) noexcept:
        return <ChunkEntry*>self.buffer.data + index

    cdef int note(self, uint32_t relative, Py_ssize_t offset, uint64_t time_ms, bytes values) except -1:
        """A record is added."""
        cdef Py_ssize_t count = self.count()
        cdef ChunkEntry* chunk = self.at(count - 1)
        cdef const uint64_t* bits = <const uint64_t*>PyBytes_AS_STRING(values)
        cdef int i
        if count == 0 or offset - <Py_ssize_t>chunk.offset >= CHUNK_BYTES:
            chunk = <ChunkEntry*>self.buffer.room(sizeof(ChunkEntry))
            memset(chunk, 0, sizeof(ChunkEntry))
            chunk.relative, chunk.offset, chunk.time_ms = relative, <uint32_t>offset, time_ms
            self.noted = None
        if values is self.noted:
            return 0
        self.noted = values
        if PyBytes_GET_SIZE(values) == 0:
            chunk.flags |= SOME_UNFILTERED
            return 0
        for i in range(FILTER_WORDS):
            chunk.values[i] |= bits[i]
        return 0

    cdef Py_ssize_t of_position(self, uint64_t relative) noexcept:
        """The chunk in which a position is, or would be."""
        cdef Py_ssize_t low = 0, high = self.count(), middle
        while low < high:
            middle = (low + high) >> 1
            if relative < self.at(middle).relative:
                high = middle
            else:
                low = middle + 1
        return max(low - 1, 0)

    cdef Py_ssize_t before_time(self, uint64_t time_ms) noexcept:
        """The last chunk that begins before a time: no record before it is of that time or later."""
        cdef Py_ssize_t low = 0, high = self.count(), middle
        while low < high:
            middle = (low + high) >> 1
            if self.at(middle).time_ms >= time_ms:
                high = middle
            else:
                low = middle + 1
        return max(low - 1, 0)

    cdef Py_ssize_t of_offset(self, Py_ssize_t offset) noexcept:
        cdef Py_ssize_t low = 0, high = self.count(), middle
        while low < high:
            middle = (low + high) >> 1
            if offset < <Py_ssize_t>self.at(middle).offset:
                high = middle
            else:
                low = middle + 1
        return max(low - 1, 0)

    def first_ms(self):
        return self.at(0).time_ms if self.count() else 0

    def tobytes(self):
        return self.buffer.tobytes()


# --- the segment ---


cdef class StreamSegment(Segment):
    """One of the segments of a stream. What each attribute is for is in stream_segment.pxd."""

    def __init__(self, str path, uint64_t base, object directory=None, *, uint64_t epoch=0):
        super().__init__(path, base, directory, epoch=epoch)
        self.chunks = Chunks()
        self.until_ms = <uint64_t>-1

    cpdef uint64_t newest_ms(self):
        """When its last record came, as far as is known now."""
        return min(self.last_ms, self.until_ms)

    cdef Py_ssize_t add(self, Message message, uint64_t position, uint64_t time_ms, bytes values) except -1:
        """Append a record, and note it. How many bytes it takes."""
        cdef Py_ssize_t size = self.append(message, position, time_ms)
        self.note(<uint32_t>(position - self.base), self.end - size, time_ms, values)
        return size

    def note(self, uint32_t relative, Py_ssize_t offset, uint64_t time_ms, bytes values):
        if self.chunks.count() == 0:
            self.first_ms = time_ms
        self.last_ms = time_ms
        self.chunks.note(relative, offset, time_ms, values)

    cpdef uint64_t safe_last(self):
        """The position of the last record that is written and synced; base - 1 if there is none."""
        cdef Py_ssize_t left = 0
        cdef const RecordHead* head
        if self.end == self.written:
            return self.last
        head = <const RecordHead*>self.in_memory(max(self.written, <Py_ssize_t>HEADER_BYTES), &left)
        return head.position - 1

    def read_chunks(self):
        """The chunks in memory, or else those in the file; ValueError or OSError if they cannot be read."""
        cdef Chunks chunks = self.chunks
        return chunks if chunks is not None else decode_chunks(Path(self.path + ".chunks").read_bytes(), self.base)[3]

    def write_index(self):
        """Write the chunks to their file, which is replaced at once, and forget them."""
        cdef Chunks chunks = self.chunks
        if chunks is None:
            return
        data = encode_chunks(self.base, self.count, self.end, self.last, self.last_ms, chunks)
        replace_derived(self.path + ".chunks", data)
        self.chunks = None

    def note_all(self, const uint8_t[::1] data):
        """Note the sound records of the whole file."""
        cdef Py_ssize_t at = HEADER_BYTES, size = min(data.shape[0], self.end), length
        cdef uint64_t above = self.base - 1
        cdef const RecordHead* head
        cdef bytes properties, known = None, values = UNFILTERED
        self.chunks = Chunks()
        while at < size:
            length = record_length(&data[at], size - at, above)
            if length <= 0:
                at = find_record(&data[0], at + RECORD_ALIGNMENT, size, above, <uint64_t>-1)
                if at < 0:
                    return
                continue
            head = <const RecordHead*>&data[at]
            properties = properties_at(&data[at])
            if properties != known:
                known, values = properties, values_of(properties)
            above = head.position
            self.note(<uint32_t>(above - self.base), at, head.time_ms, values)
            at += length


cdef bytes properties_at(const uint8_t* p):
    """The properties of a sound record."""
    cdef const RecordHead* head = <const RecordHead*>p
    p += RECORD_HEAD_BYTES
    p += 1 + p[0]
    p += 1 + p[0]
    return PyBytes_FromStringAndSize(<char*>p, head.properties_length)


def encode_chunks(uint64_t base, uint32_t count, uint32_t end, uint64_t last, uint64_t last_ms, Chunks chunks):
    more = last.to_bytes(8, "little") + last_ms.to_bytes(8, "little") + chunks.tobytes()
    return encode_header(CHUNKS_MAGIC, base, count, end, more)


def decode_chunks(bytes data, uint64_t base):
    """How many records there are, where they end, last and last_ms, and the chunks; ValueError or UnknownVersion if
    it is not sound.
    """
    check_header(CHUNKS_MAGIC, data, base)
    count, end = count_and_end(data)
    more = data[HEADER_BYTES:HEADER_BYTES + CHUNKS_MORE_BYTES]
    entries = data[HEADER_BYTES + CHUNKS_MORE_BYTES:]
    if len(more) < CHUNKS_MORE_BYTES or len(entries) % sizeof(ChunkEntry):
        raise ValueError(f"{len(entries)} bytes are no chunks")
    return count, end, (uint64_at(more, 0), uint64_at(more, CHUNKS_MORE_BYTES // 2)), Chunks(entries)
