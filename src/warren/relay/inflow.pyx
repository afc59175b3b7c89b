# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a broker sends to a relay: deliveries become messages, confirms become numbers.

    frame       type:octet channel:uint16 size:uint32 payload end:octet
    deliver     60:uint16 60:uint16 consumer_tag:shortstr delivery_tag:uint64 redelivered:octet
                exchange:shortstr routing_key:shortstr

This is a .pyx since it cuts raw bytes: a relay takes in as many messages as a broker sends. Strings that are
the same as in the message before are shared with it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from warren.amqp.wire cimport (
    BASIC_ACK, FRAME_BODY, FRAME_HEAD_SIZE, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD, get16, get32, get64,
)
from warren.broker.message cimport Message, publish_message
from warren.client.incoming cimport (
    ACK_SIZE, BASIC_DELIVER, BASIC_NACK, HEADER_SIZE, METHOD_ID_SIZE, check, check_end, frame_size,
)

from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX

cdef enum:
    TAG_AND_BITS = 9

cdef uint32_t frame_bytes_max = FRAME_MAX
cdef uint64_t body_bytes_max = 1 << 30


cdef class Inflow:
    """Cuts what arrives. The owner takes what it finds in the lists, and empties them."""

    cdef readonly list deliveries   # (delivery tag, whether it was delivered before, message)
    cdef readonly list confirms     # (delivery tag, whether it stands for all up to it, whether it is an ack)
    cdef readonly list methods      # (channel, payload) of all others
    cdef bytes rest                 # of a frame that has not arrived as a whole
    cdef bint awaits_content        # a basic.deliver has come, and not yet all of its content
    cdef uint64_t delivery_tag      # of that delivery
    cdef bint redelivered
    cdef bytes exchange
    cdef bytes routing_key
    cdef bytes properties
    cdef bytes body                 # as much room as the header has announced
    cdef Py_ssize_t body_at         # how much of it has arrived

    def __cinit__(self):
        self.deliveries = []
        self.confirms = []
        self.methods = []
        self.rest = b""
        self.exchange = b""
        self.routing_key = b""
        self.properties = b""

    def feed(self, bytes data not None):
        """Deal with the next bytes. `benchmarks/relays.py` watches this."""
        cdef Py_ssize_t at = 0, size, whole
        cdef const uint8_t* start
        if self.rest:
            data = self.rest + data
        start = <const uint8_t*>PyBytes_AS_STRING(data)
        size = PyBytes_GET_SIZE(data)
        while size - at >= FRAME_HEAD_SIZE:
            whole = frame_size(start + at, frame_bytes_max)
            if size - at < whole:
                break
            self.frame(start + at, whole - FRAME_OVERHEAD)
            at += whole
        self.rest = data[at:]

    cdef int frame(self, const uint8_t* frame, Py_ssize_t size) except -1:
        cdef const uint8_t* payload = frame + FRAME_HEAD_SIZE
        check_end(payload, size)
        if frame[0] == FRAME_METHOD:
            self.method(get16(frame + 1), payload, size)
        elif frame[0] == FRAME_HEADER:
            self.header(payload, size)
        elif frame[0] == FRAME_BODY:
            self.body_frame(payload, size)
        return 0

    cdef int method(self, uint16_t channel, const uint8_t* payload, Py_ssize_t size) except -1:
        check(size >= METHOD_ID_SIZE and not self.awaits_content)
        cdef uint32_t kind = get32(payload)
        if kind == BASIC_DELIVER:
            self.deliver(payload, size)
        elif kind == BASIC_ACK or kind == BASIC_NACK:
            check(size == ACK_SIZE)
            self.confirms.append((get64(payload + METHOD_ID_SIZE), bool(payload[12] & 1), kind == BASIC_ACK))
        else:
            self.methods.append((channel, PyBytes_FromStringAndSize(<const char*>payload, size)))
        return 0

    cdef int deliver(self, const uint8_t* payload, Py_ssize_t size) except -1:
        cdef Py_ssize_t at = METHOD_ID_SIZE
        check(size > at)
        at += 1 + payload[at]
        check(size >= at + TAG_AND_BITS + 1)
        self.delivery_tag = get64(payload + at)
        self.redelivered = payload[at + 8] & 1
        at += TAG_AND_BITS
        check(size > at + 1 + payload[at])
        self.exchange = same_or_new(self.exchange, payload + at, 1 + payload[at])
        at += 1 + payload[at]
        check(size == at + 1 + payload[at])
        self.routing_key = same_or_new(self.routing_key, payload + at, 1 + payload[at])
        self.awaits_content = True
        self.body = None
        return 0

    cdef int header(self, const uint8_t* payload, Py_ssize_t size) except -1:
        check(self.awaits_content and self.body is None and size >= HEADER_SIZE + 2)
        cdef uint64_t body_size = get64(payload + 4)
        if body_size > body_bytes_max:
            raise ClientError(f"the broker announced a message of {body_size} bytes")
        self.properties = same_or_new(self.properties, payload + HEADER_SIZE, size - HEADER_SIZE)
        self.body = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>body_size)
        self.body_at = 0
        if body_size == 0:
            self.end_content()
        return 0

    cdef int body_frame(self, const uint8_t* payload, Py_ssize_t size) except -1:
        check(self.awaits_content and self.body is not None)
        check(size <= PyBytes_GET_SIZE(self.body) - self.body_at)
        memcpy(PyBytes_AS_STRING(self.body) + self.body_at, payload, size)
        self.body_at += size
        if self.body_at == PyBytes_GET_SIZE(self.body):
            self.end_content()
        return 0

    cdef int end_content(self) except -1:
        cdef Message message = publish_message(
            self.exchange, self.routing_key, self.properties, self.body, True, 0, -1, 0
        )
        self.deliveries.append((self.delivery_tag, self.redelivered, message))
        self.awaits_content = False
        self.body = None
        return 0


cdef bytes same_or_new(bytes known, const uint8_t* p, Py_ssize_t size):
    if PyBytes_GET_SIZE(known) == size and memcmp(PyBytes_AS_STRING(known), p, size) == 0:
        return known
    return PyBytes_FromStringAndSize(<const char*>p, size)
