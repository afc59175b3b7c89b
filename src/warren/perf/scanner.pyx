# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The load tool's work for every message: stamp it on the way out, count it on the way in.

    frame   type:octet channel:uint16 size:uint32 payload end:octet
    body    sent_ns:uint64 in the machine's own byte order, then padding

A `Scanner` goes over received bytes and decodes no more than it must: it counts deliveries and writes acks
for them, counts confirms, and sets every other method aside for its owner. It reads no clock: the time is an
argument.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from warren.amqp.wire cimport (
    BASIC_ACK, FRAME_BODY, FRAME_END, FRAME_HEAD_SIZE, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD, get16,
    get32, get64, put32, put64, put_frame_head,
)
from warren.client.incoming cimport (
    ACK_SIZE, BASIC_DELIVER, BASIC_NACK, HEADER_SIZE, METHOD_ID_SIZE, check, check_end, frame_size,
)

from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil

cdef enum:
    STAMP_SIZE = 8
    MARKS_MIN = 1024
    MARKS_MAX = 1 << 26
    STEP_BITS = 7                 # a bucket is 1/128 of a power of two wide: errors stay below 0.8 %
    STEPS = 1 << STEP_BITS
    NS_BITS_MAX = 42              # more than 73 minutes is no latency: somebody else sent that message
    BUCKETS = (NS_BITS_MAX - STEP_BITS + 1) * STEPS

cdef uint32_t frame_bytes_max = FRAME_MAX


def stamp(bytearray data not None, Py_ssize_t offset, Py_ssize_t stride, Py_ssize_t count, uint64_t now_ns):
    """Write the time into each of `count` messages, at `offset` and then every `stride` bytes."""
    cdef uint8_t* at = <uint8_t*>PyByteArray_AS_STRING(data) + offset
    if count > 0 and (offset < 0 or offset + (count - 1) * stride + STAMP_SIZE > PyByteArray_GET_SIZE(data)):
        raise ValueError("the stamps would not fit the messages")
    for _ in range(count):
        memcpy(at, &now_ns, STAMP_SIZE)
        at += stride


cdef class Histogram:
    """How often each latency was seen, in buckets that grow with the value."""

    cdef uint64_t buckets[BUCKETS]
    cdef readonly uint64_t count
    cdef readonly uint64_t max_ns

    def record(self, uint64_t ns):
        self.add(ns)

    cdef inline void add(self, uint64_t ns) noexcept:
        cdef int shift
        if ns >> NS_BITS_MAX:
            return
        self.count += 1
        self.max_ns = max(self.max_ns, ns)
        if ns < STEPS:
            self.buckets[ns] += 1
        else:
            shift = 63 - __builtin_clzll(ns) - STEP_BITS
            self.buckets[shift * STEPS + <int>(ns >> shift)] += 1

    def percentile(self, double fraction):
        """The latency in ns that this fraction of all did not exceed; 0 if there were none."""
        cdef uint64_t seen = 0, wanted = max(<uint64_t>1, <uint64_t>(fraction * self.count + 0.5))
        cdef int i, shift
        for i in range(BUCKETS):
            seen += self.buckets[i]
            if self.count and seen >= wanted:
                shift = max(0, (i >> STEP_BITS) - 1)
                return min(self.max_ns, (<uint64_t>(i - shift * STEPS + 1) << shift) - 1)
        return 0

    def clear(self):
        memset(self.buckets, 0, sizeof(self.buckets))
        self.count = self.max_ns = 0


cdef class Scanner:
    """Counts the messages and confirms that arrive on one connection.

    Confirms may come out of order: all tags up to `floor` are settled, and `marks` has those above it.
    """

    cdef readonly uint64_t deliveries
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t nacked
    cdef readonly list methods  # (channel, payload) of each other method, until `take_methods`
    cdef Histogram latencies    # gets the age of every delivery that is long enough to carry a stamp
    cdef uint64_t now_ns        # when the bytes in hand arrived
    cdef bytearray piece        # the beginning of a frame that is incomplete
    cdef bytearray acks         # frames to be sent, until `take_acks`
    cdef uint32_t ack_every     # how many deliveries to one ack; 0 for no acks
    cdef uint32_t unacked       # deliveries since the last ack
    cdef uint64_t delivery_tag  # of the delivery that is arriving
    cdef uint64_t body_left     # how many bytes of its body are missing
    cdef bint body_begun        # whether the first frame of its body has come
    cdef bytearray marks        # one octet a tag, at the tag modulo the size, which is a power of two
    cdef uint64_t floor         # all tags up to this one are confirmed or nacked

    def __init__(self, *, uint32_t ack_every=0, Histogram latencies=None):
        self.methods = []
        self.latencies = latencies
        self.piece = bytearray()
        self.acks = bytearray()
        self.ack_every = ack_every
        self.marks = bytearray(MARKS_MIN)

    def take_methods(self):
        """All methods but deliveries and confirms since the last call, as (channel, payload)."""
        taken = self.methods
        self.methods = []
        return taken

    def take_acks(self):
        """The ack frames for deliveries since the last call."""
        if not self.acks:
            return b""
        taken = bytes(self.acks)
        PyByteArray_Resize(self.acks, 0)
        return taken

    def feed(self, bytearray data not None, Py_ssize_t size, uint64_t now_ns):
        """Go over the first `size` bytes of `data`, that arrived at `now_ns`."""
        cdef const uint8_t* start = <const uint8_t*>PyByteArray_AS_STRING(data)
        cdef Py_ssize_t at = 0, whole
        if size > PyByteArray_GET_SIZE(data):
            raise ValueError("size is larger than data")
        self.now_ns = now_ns
        if self.piece:
            at = self.complete_piece(start, size)
        while size - at >= FRAME_HEAD_SIZE:
            whole = frame_size(start + at, frame_bytes_max)
            if size - at < whole:
                break
            self.frame(start + at, whole - FRAME_OVERHEAD)
            at += whole
        if at < size:
            self.keep(start + at, size - at)

    cdef int keep(self, const uint8_t* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t had = PyByteArray_GET_SIZE(self.piece)
        PyByteArray_Resize(self.piece, had + size)
        memcpy(PyByteArray_AS_STRING(self.piece) + had, data, size)
        return 0

    cdef Py_ssize_t complete_piece(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Complete the frame that has begun to arrive; return how many bytes that took."""
        cdef Py_ssize_t had = PyByteArray_GET_SIZE(self.piece), used = 0, whole
        if had < FRAME_HEAD_SIZE:
            used = min(size, FRAME_HEAD_SIZE - had)
            self.keep(data, used)
            if had + used < FRAME_HEAD_SIZE:
                return used
            had = FRAME_HEAD_SIZE
        whole = frame_size(<const uint8_t*>PyByteArray_AS_STRING(self.piece), frame_bytes_max)
        cdef Py_ssize_t more = min(size - used, whole - had)
        self.keep(data + used, more)
        if had + more == whole:
            self.frame(<const uint8_t*>PyByteArray_AS_STRING(self.piece), whole - FRAME_OVERHEAD)
            PyByteArray_Resize(self.piece, 0)
        return used + more

    cdef int frame(self, const uint8_t* frame, Py_ssize_t size) except -1:
        cdef const uint8_t* payload = frame + FRAME_HEAD_SIZE
        check_end(payload, size)
        if frame[0] == FRAME_METHOD:
            self.method(get16(frame + 1), payload, size)
        elif frame[0] == FRAME_HEADER:
            check(size >= HEADER_SIZE)
            self.body_left = get64(payload + 4)
            self.body_begun = False
            if self.body_left == 0:
                self.delivered(get16(frame + 1))
        elif frame[0] == FRAME_BODY:
            self.body(get16(frame + 1), payload, size)
        return 0

    cdef int method(self, uint16_t channel, const uint8_t* payload, Py_ssize_t size) except -1:
        check(size >= METHOD_ID_SIZE)
        cdef uint32_t kind = get32(payload)
        if kind == BASIC_DELIVER:
            check(size > METHOD_ID_SIZE and size >= METHOD_ID_SIZE + 9 + payload[METHOD_ID_SIZE])
            self.delivery_tag = get64(payload + METHOD_ID_SIZE + 1 + payload[METHOD_ID_SIZE])
        elif kind == BASIC_ACK:
            check(size == ACK_SIZE)
            self.confirmed += self.settle(get64(payload + 4), payload[12] & 1)
        elif kind == BASIC_NACK:
            check(size == ACK_SIZE)
            self.nacked += self.settle(get64(payload + 4), payload[12] & 1)
        else:
            self.methods.append((channel, PyBytes_FromStringAndSize(<const char*>payload, size)))
        return 0

    cdef int body(self, uint16_t channel, const uint8_t* payload, Py_ssize_t size) except -1:
        cdef uint64_t sent_ns
        check(<uint64_t>size <= self.body_left)
        if not self.body_begun and size >= STAMP_SIZE and self.latencies is not None:
            memcpy(&sent_ns, payload, STAMP_SIZE)
            self.latencies.add(self.now_ns - sent_ns)
        self.body_begun = True
        self.body_left -= size
        if self.body_left == 0:
            self.delivered(channel)
        return 0

    cdef int delivered(self, uint16_t channel) except -1:
        self.deliveries += 1
        self.unacked += 1
        if self.ack_every and self.unacked >= self.ack_every:
            self.unacked = 0
            self.write_ack(channel)
        return 0

    cdef int write_ack(self, uint16_t channel) except -1:
        cdef Py_ssize_t had = PyByteArray_GET_SIZE(self.acks)
        PyByteArray_Resize(self.acks, had + ACK_SIZE + FRAME_OVERHEAD)
        cdef uint8_t* at = <uint8_t*>PyByteArray_AS_STRING(self.acks) + had
        at = put_frame_head(at, FRAME_METHOD, channel, ACK_SIZE)
        put32(at, BASIC_ACK)
        put64(at + 4, self.delivery_tag)
        at[12] = self.ack_every > 1
        at[13] = FRAME_END
        return 0

    cdef Py_ssize_t settle(self, uint64_t tag, bint multiple) except -1:
        """Mark one tag, or all up to it; return how many of them were not marked before."""
        if tag <= self.floor:
            return 0
        self.reach(tag)
        cdef uint8_t* marks = <uint8_t*>PyByteArray_AS_STRING(self.marks)
        cdef uint64_t mask = PyByteArray_GET_SIZE(self.marks) - 1
        cdef Py_ssize_t fresh = 0
        if multiple:
            while self.floor < tag:
                self.floor += 1
                fresh += not marks[self.floor & mask]
                marks[self.floor & mask] = 0
        else:
            fresh = not marks[tag & mask]
            marks[tag & mask] = 1
        while marks[(self.floor + 1) & mask]:
            self.floor += 1
            marks[self.floor & mask] = 0
        return fresh

    cdef int reach(self, uint64_t tag) except -1:
        """Make room for marks up to `tag`. Marks pile up behind a message that is confirmed late."""
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self.marks)
        if tag - self.floor <= <uint64_t>size:
            return 0
        if tag - self.floor > MARKS_MAX:
            raise ClientError(f"the broker confirmed delivery tag {tag} but not yet {self.floor + 1}")
        wider = bytearray(1 << (tag - self.floor - 1).bit_length())
        for known in range(self.floor + 1, self.floor + 1 + size):
            wider[known % len(wider)] = self.marks[known % size]
        self.marks = wider
        return 0
