# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Frames on their way out.

An `Output` gathers all frames that one connection has to send in one turn of the event loop, so that they
leave with one write. It writes them into a bytes object that grows, the block, and hands that over without a
copy; an idle connection holds no block. A large body is not copied but goes out as a chunk of its own:

    chunks   [ block | body | block | body ]   and `block`, which the next frames go into
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.amqp.wire cimport (
    BASIC_ACK, CLASS_BASIC, FRAME_BODY, FRAME_END, FRAME_HEAD_SIZE, FRAME_HEADER, FRAME_HEARTBEAT,
    FRAME_METHOD, FRAME_OVERHEAD, put16, put32, put64, put_frame_head,
)

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject** bytes, Py_ssize_t newsize) except -1
    PyObject* PyBytes_FromStringAndSize_raw "PyBytes_FromStringAndSize"(const char* v, Py_ssize_t len) except NULL
    char* PyBytes_AS_STRING_raw "PyBytes_AS_STRING"(PyObject* o)

cdef enum:
    BLOCK_BYTES_MIN = 512
    BLOCK_BYTES_HINT_MAX = 1 << 19
    TURN_BYTES_MAX = 1 << 20       # consumers of one connection get this much in one turn, plus one message
    BODY_COPY_BYTES_MAX = 1 << 13  # a larger body goes out without being copied
    HEADER_SIZE = 12               # class, weight and body size of a content header


cdef class Output:
    """All that one connection has yet to send. The `.pxd` explains the attributes."""

    def __cinit__(self, list dirty, object owner):
        self.dirty = dirty
        self.owner = owner
        self.chunks = []
        self.frame_max = 4096
        self.hint = BLOCK_BYTES_MIN
        self.turn_bytes_max = TURN_BYTES_MAX

    def __dealloc__(self):
        Py_XDECREF(self.block)

    def __repr__(self):
        return f"<Output: {self.pending_bytes} bytes pending>"

    @property
    def pending_bytes(self):
        return self.size + self.chunked_bytes

    cdef uint8_t* room(self, Py_ssize_t size) except NULL:
        """Where the next `size` bytes go, in the block. The caller adds to `self.size` how many it wrote."""
        cdef Py_ssize_t wanted = self.size + size
        if wanted > self.capacity:
            if self.block == NULL:
                self.capacity = max(wanted, self.hint)
                self.block = PyBytes_FromStringAndSize_raw(NULL, self.capacity)
            else:
                self.capacity = max(wanted, self.capacity * 2)
                _PyBytes_Resize(&self.block, self.capacity)
            self.data = <uint8_t*>PyBytes_AS_STRING_raw(self.block)
        return self.data + self.size

    cdef int mark(self) except -1:
        if not self.marked and not self.closed:
            self.marked = True
            self.dirty.append(self)
        return 0

    cdef int cut(self) except -1:
        """Move the block to the chunks; the next frames go into a new one."""
        if self.size == 0:
            return 0
        _PyBytes_Resize(&self.block, self.size)
        self.chunks.append(<object>self.block)
        Py_XDECREF(self.block)
        self.chunked_bytes += self.size
        self.hint = min(max(self.size + self.size // 4, BLOCK_BYTES_MIN), BLOCK_BYTES_HINT_MAX)
        self.block = NULL
        self.data = NULL
        self.size = self.capacity = 0
        return 0

    def limit_turn(self, Py_ssize_t bytes_max):
        """Give consumers at most this many bytes a turn, plus one message; 0 for the default."""
        self.turn_bytes_max = min(bytes_max, TURN_BYTES_MAX) if bytes_max else TURN_BYTES_MAX

    cpdef bint has_room(self):
        """Whether a consumer may be given one more message now."""
        if self.congested or self.size + self.chunked_bytes >= self.turn_bytes_max:
            self.starved = True
            return False
        return True

    cpdef int method(self, uint16_t channel, bytes payload) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
        cdef uint8_t* p = put_frame_head(self.room(size + FRAME_OVERHEAD), FRAME_METHOD, channel, <uint32_t>size)
        memcpy(p, PyBytes_AS_STRING(payload), size)
        p[size] = FRAME_END
        self.size += size + FRAME_OVERHEAD
        return self.mark()

    cpdef int heartbeat(self) except -1:
        put_frame_head(self.room(FRAME_OVERHEAD), FRAME_HEARTBEAT, 0, 0)[0] = FRAME_END
        self.size += FRAME_OVERHEAD
        return self.mark()

    cpdef int confirm(self, uint16_t channel, uint64_t delivery_tag, bint multiple) except -1:
        """Write basic.ack: the broker confirms a message, or with `multiple` all messages up to it."""
        cdef uint8_t* p = put_frame_head(self.room(13 + FRAME_OVERHEAD), FRAME_METHOD, channel, 13)
        put32(p, BASIC_ACK)
        put64(p + 4, delivery_tag)
        p[12] = multiple
        p[13] = FRAME_END
        self.size += 13 + FRAME_OVERHEAD
        return self.mark()

    cpdef int deliver(self, uint16_t channel, bytes prefix, uint64_t delivery_tag, bint redelivered,
                      bytes exchange, bytes routing_key, bytes properties, bytes body) except -1:
        """Write basic.deliver with its content. `prefix` is the method's id and the consumer tag; the names
        begin with their length octet. `warren perf throughput` watches this.
        """
        cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix)
        cdef Py_ssize_t exchange_size = PyBytes_GET_SIZE(exchange)
        cdef Py_ssize_t key_size = PyBytes_GET_SIZE(routing_key)
        cdef Py_ssize_t size = prefix_size + 9 + exchange_size + key_size
        cdef uint8_t* p = put_frame_head(self.room(size + FRAME_OVERHEAD), FRAME_METHOD, channel, <uint32_t>size)
        memcpy(p, PyBytes_AS_STRING(prefix), prefix_size)
        p += prefix_size
        put64(p, delivery_tag)
        p[8] = redelivered
        p += 9
        memcpy(p, PyBytes_AS_STRING(exchange), exchange_size)
        p += exchange_size
        memcpy(p, PyBytes_AS_STRING(routing_key), key_size)
        p[key_size] = FRAME_END
        self.size += size + FRAME_OVERHEAD
        return self.content(channel, properties, body)

    cpdef int content(self, uint16_t channel, bytes properties, bytes body) except -1:
        """Write the header frame and the body frames of a message."""
        cdef Py_ssize_t properties_size = PyBytes_GET_SIZE(properties)
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t size = HEADER_SIZE + properties_size
        cdef Py_ssize_t copied = body_size if body_size <= BODY_COPY_BYTES_MAX else 0
        cdef uint8_t* p = self.room(size + copied + 2 * FRAME_OVERHEAD)
        p = put_frame_head(p, FRAME_HEADER, channel, <uint32_t>size)
        put32(p, CLASS_BASIC << 16)
        put64(p + 4, body_size)
        memcpy(p + HEADER_SIZE, PyBytes_AS_STRING(properties), properties_size)
        p[size] = FRAME_END
        self.size += size + FRAME_OVERHEAD
        if body_size == 0:
            return self.mark()
        if copied == 0 or body_size > <Py_ssize_t>self.frame_max - FRAME_OVERHEAD:
            return self.large_body(channel, body)
        p = put_frame_head(p + size + 1, FRAME_BODY, channel, <uint32_t>body_size)
        memcpy(p, PyBytes_AS_STRING(body), body_size)
        p[body_size] = FRAME_END
        self.size += body_size + FRAME_OVERHEAD
        return self.mark()

    def large_body(self, uint16_t channel, bytes body):
        """Write a body without copying it, in as many frames as it takes."""
        cdef Py_ssize_t at = 0, size = PyBytes_GET_SIZE(body), share = self.frame_max - FRAME_OVERHEAD, piece
        view = memoryview(body) if size > share else body
        while at < size:
            piece = min(share, size - at)
            put_frame_head(self.room(FRAME_HEAD_SIZE), FRAME_BODY, channel, <uint32_t>piece)
            self.size += FRAME_HEAD_SIZE
            self.cut()
            self.chunks.append(body if piece == size else view[at:at + piece])
            self.chunked_bytes += piece
            self.room(1)[0] = FRAME_END
            self.size += 1
            at += piece
        self.mark()
        return 0

    cpdef list take(self):
        """Take all chunks, in order; the output is empty then."""
        self.cut()
        cdef list chunks = self.chunks
        self.chunks = []
        self.sent_bytes += self.chunked_bytes
        self.writes += len(chunks) > 0
        self.chunked_bytes = 0
        self.marked = False
        return chunks
