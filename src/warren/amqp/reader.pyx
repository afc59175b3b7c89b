# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Frames on their way in.

    frame    type:octet channel:uint16 size:uint32 payload end:octet
    header   class:uint16 weight:uint16 body_size:uint64 properties

The kernel writes into one `ReadBuffer` that all connections of an event loop share, and frames are
read in place; a connection keeps only an incomplete frame at the end. A publish whose method frame, or
whose properties, are byte for byte those of the message before on its channel is not parsed again.

`FrameReader` is the base of a connection, `ContentReader` of a channel. Neither knows the broker: they call
`on_method`, `published` and `acked` when something arrived, and `on_error` when the peer made a mistake or a
handler failed.

Reading stops between two frames when the turn's budget of work is used up (`on_tired`), and when a client
publishes during an alarm (`on_blocked_publish`); `resume` goes on with the frames that were read already.

A channel can wait, for a disk for example, while the others go on. Meanwhile its frames are deferred: they
are copied, and dealt with when the channel goes on, in their order, and before any that come later. So each
channel sees the same frames in the same order as if it had never waited.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from warren.amqp.budget import Budget
from warren.amqp.errors import ChannelFault, FrameError, PreconditionFailed, SyntaxFault, UnexpectedFrame

from warren.amqp.budget cimport Budget
from warren.amqp.traits cimport table_is_sound, value_size
from warren.amqp.wire cimport (
    BASIC_ACK, BASIC_PUBLISH, CLASS_BASIC, FRAME_BODY, FRAME_END, FRAME_HEAD_SIZE, FRAME_HEADER,
    FRAME_HEARTBEAT, FRAME_METHOD, FRAME_OVERHEAD, get16, get32, get64,
)

cdef enum Expecting:
    EXPECT_METHOD
    EXPECT_HEADER
    EXPECT_BODY
    EXPECT_NOTHING   # the broker has closed the channel: content is dropped, and methods go to `on_method`

cdef enum:
    GREETING_SIZE = 8
    HEADER_SIZE = 12
    ACK_SIZE = 13
    CAPACITY_DEFAULT = 1024 * 1024
    DEFERRED_OVERHEAD = 112   # the memory that a deferred frame takes besides its payload, about
    METHOD_WORK = 60          # units of work for an ordinary method; those that do more take more

EMPTY_PROPERTIES = b"\0\0"
cdef Budget ENDLESS = Budget(1 << 62)


cdef class ReadBuffer:
    """The memory that the kernel writes into, shared by all connections of one event loop."""

    def __cinit__(self, Py_ssize_t capacity=CAPACITY_DEFAULT):
        self.memory = bytearray(capacity)
        self.view = memoryview(self.memory)
        self.data = <uint8_t*><char*>self.memory
        self.capacity = capacity


cdef inline bint same(bytes known, const uint8_t* p, Py_ssize_t size) noexcept:
    return known is not None and PyBytes_GET_SIZE(known) == size and memcmp(PyBytes_AS_STRING(known), p, size) == 0


cdef bint names_routing_header(const uint8_t* p, const uint8_t* end) noexcept:
    """Whether a sound table has a field CC or BCC; not in tables inside it."""
    cdef uint8_t size
    while p < end:
        size = p[0]
        if (size == 2 and p[1] == c"C" and p[2] == c"C") or (
            size == 3 and p[1] == c"B" and p[2] == c"C" and p[3] == c"C"
        ):
            return True
        p += 1 + size
        p += value_size(p, end, 1)
    return False


cdef uint64_t all_awaited = 0


def awaited_bytes():
    """How many bytes are allocated for arriving bodies, and not filled yet, on all connections together."""
    return all_awaited


cdef class ContentReader:
    """The state of a channel's input: whether a method is due, or the header or body behind basic.publish.
    The `.pxd` explains the attributes.
    """

    def __cinit__(self, uint16_t number, *arguments, **named):
        self.number = number
        self.expecting = EXPECT_METHOD

    def __dealloc__(self):
        self.await_bytes(0)

    cdef void await_bytes(self, uint64_t size) noexcept:
        global all_awaited
        all_awaited += size - self.awaited
        self.awaited = size

    cpdef int discard(self) except -1:
        """Drop all content from now on. The channel waits no more; its deferred frames need a `go_on`."""
        self.expecting = EXPECT_NOTHING
        self.body = None
        self.await_bytes(0)
        self.waiting = False
        self.held = bool(self.deferred)
        return 0

    @property
    def discarding(self):
        return self.expecting == EXPECT_NOTHING

    cpdef int wait(self) except -1:
        """Defer all frames of this channel until `go_on`. A channel that discards does not wait."""
        if self.expecting != EXPECT_NOTHING:
            self.waiting = self.held = True
        return 0

    cpdef int published(self, bytes body) except -1:
        """A whole message has arrived."""
        raise NotImplementedError

    cpdef int acked(self, uint64_t delivery_tag, bint multiple) except -1:
        """The client has sent basic.ack."""
        raise NotImplementedError

    cdef int on_publish(self, const uint8_t* p, uint32_t size) except -1:
        if not same(self.publish_payload, p, size):
            self.publish_payload = None
            self.parse_publish(p, size)
            self.publish_payload = PyBytes_FromStringAndSize(<char*>p, size)
            self.publish_changed = True
        self.expecting = EXPECT_HEADER
        return 0

    cdef int parse_publish(self, const uint8_t* p, Py_ssize_t size) except -1:
        """Read the arguments of basic.publish; the names keep their length octet."""
        cdef Py_ssize_t exchange_size = 1 + p[6] if size > 6 else size
        cdef Py_ssize_t key_size = 1 + p[6 + exchange_size] if size > 6 + exchange_size else size
        cdef Py_ssize_t bits = 6 + exchange_size + key_size
        if size != bits + 1:
            raise SyntaxFault("basic.publish is malformed")
        self.exchange = PyBytes_FromStringAndSize(<char*>p + 6, exchange_size)
        self.routing_key = PyBytes_FromStringAndSize(<char*>p + 6 + exchange_size, key_size)
        self.mandatory = p[bits] & 1
        self.immediate = p[bits] & 2 != 0
        return 0

    cdef int on_header(self, const uint8_t* p, uint32_t size) except -1:
        if self.expecting != EXPECT_HEADER:
            raise UnexpectedFrame("content header frame where none is due")
        if size < HEADER_SIZE + 2:
            raise SyntaxFault("content header frame is too short")
        if get16(p) != CLASS_BASIC:
            raise UnexpectedFrame(f"content header for class {get16(p)}, expected class 60")
        self.body_size = self.body_left = get64(p + 4)
        if self.body_size > self.body_bytes_max:
            raise PreconditionFailed(
                f"message size {self.body_size} is larger than configured max size {self.body_bytes_max}"
            )
        if not same(self.properties, p + HEADER_SIZE, size - HEADER_SIZE):
            self.properties = None
            self.scan(p + HEADER_SIZE, size - HEADER_SIZE)
            self.properties = PyBytes_FromStringAndSize(<char*>p + HEADER_SIZE, size - HEADER_SIZE)
            self.properties_changed = True
        if self.body_size == 0:
            return self.complete(b"")
        self.expecting = EXPECT_BODY
        return 0

    cdef int on_body(self, const uint8_t* p, uint32_t size) except -1:
        if self.expecting != EXPECT_BODY:
            raise UnexpectedFrame("content body frame where none is due")
        if size > self.body_left:
            raise UnexpectedFrame("content body is longer than its header said")
        if self.body is None:
            if size == self.body_size:
                return self.complete(PyBytes_FromStringAndSize(<char*>p, size))
            self.body = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>self.body_size)
        memcpy(PyBytes_AS_STRING(self.body) + (self.body_size - self.body_left), p, size)
        self.body_left -= size
        self.await_bytes(self.body_left)
        if self.body_left == 0:
            body = self.body
            self.body = None
            return self.complete(body)
        return 0

    cdef int complete(self, bytes body) except -1:
        self.expecting = EXPECT_METHOD
        return self.published(body)

    cdef int scan(self, const uint8_t* p, Py_ssize_t size) except -1:
        """Check the properties, and note those that the broker acts upon."""
        cdef uint16_t flags = get16(p)
        cdef const uint8_t* end = p + size
        cdef const uint8_t* at = p + 2
        cdef Py_ssize_t length
        cdef int bit
        self.delivery_mode = 0
        self.has_routing_headers = False
        self.expiration = self.user_id = self.reply_to = None
        if flags & 3:
            raise SyntaxFault("the properties have unknown flags")
        for bit in range(15, 1, -1):
            if not flags & (1 << bit):
                continue
            if bit == 13:
                length = 4 + <Py_ssize_t>get32(at) if end - at >= 4 else -1
                if length < 0 or length > end - at or not table_is_sound(at + 4, at + length, 1):
                    raise SyntaxFault("the headers are not a sound field table")
                self.has_routing_headers = names_routing_header(at + 4, at + length)
            elif bit == 12 or bit == 11:
                length = 1
            elif bit == 6:
                length = 8
            else:
                length = 1 + at[0] if end > at else -1
            if length < 0 or length > end - at:
                raise SyntaxFault("the properties end too early")
            if bit == 12:
                self.delivery_mode = at[0]
            elif bit == 9:
                self.reply_to = PyBytes_FromStringAndSize(<char*>at + 1, length - 1)
            elif bit == 8:
                self.expiration = PyBytes_FromStringAndSize(<char*>at + 1, length - 1)
            elif bit == 4:
                self.user_id = PyBytes_FromStringAndSize(<char*>at + 1, length - 1)
            at += length
        if at != end:
            raise SyntaxFault("the properties do not match their flags")
        return 0


cdef class FrameReader:
    """Cuts one connection's bytes into frames and hands each to its channel. The `.pxd` explains the
    attributes.

    If a frame is in error, `on_error` is called, and reading goes on behind that frame.

    Frames of a channel are deferred while it waits or has deferred frames left (`held`). When a channel waits
    no more but has deferred frames, it is in `going_on`: they are dealt with at the end of the present read
    or, if the reader is suspended, first thing when it resumes.
    """

    def __cinit__(self, ReadBuffer buffer, *arguments, **named):
        self.buffer = buffer
        self.channels = {}
        self.going_on = []
        self.frame_max = 4096
        self.budget = ENDLESS

    cpdef add_channel(self, ContentReader channel):
        self.channels[channel.number] = channel
        self.current = channel

    cpdef remove_channel(self, uint16_t number):
        channel = self.channels.pop(number, None)
        self.current = None
        # The deferred frames of a channel in `going_on` came behind its close: they are for its successor.
        if channel is not None and channel not in self.going_on:
            self.drop_deferred(channel)

    # --- what a connection implements ---

    cpdef int on_greeting(self, bytes greeting) except -1:
        """The client has sent its first eight bytes, the protocol header."""
        raise NotImplementedError

    cpdef int on_method(self, uint16_t number, bytes payload) except -1:
        """A method has arrived, other than the publishes and acks of an open channel."""
        raise NotImplementedError

    cpdef int on_error(self, uint16_t number, error) except -1:
        """A frame of channel `number` could not be dealt with."""
        raise NotImplementedError

    cpdef int on_batch_begin(self) except -1:
        """The frames of one read are about to be dealt with."""
        raise NotImplementedError

    cpdef int on_batch_end(self) except -1:
        """All frames of one read have been dealt with."""
        raise NotImplementedError

    cpdef int on_tired(self) except -1:
        """The turn's budget is used up: the reader is suspended until the connection resumes it."""
        raise NotImplementedError

    cpdef int on_blocked_publish(self) except -1:
        """The client publishes while the reader is `blocking`: the reader is suspended before the content."""
        raise NotImplementedError

    cpdef int on_deferred(self) except -1:
        """Called at the end of a batch if there are deferred frames, or if the last of them were handled."""
        raise NotImplementedError

    # --- bytes in ---

    cpdef object writable_view(self):
        """The part of the shared buffer that the next bytes of this connection are to be written into.

        A read is limited to `read_bytes_max`, or, if that is more, to as many bytes as there are of an
        incomplete frame: else a large frame would take too many reads.
        """
        cdef Py_ssize_t held = self.rest_size()
        if self.read_bytes_max:
            return self.buffer.view[held:held + max(held, self.read_bytes_max)]
        return self.buffer.view[held:] if held else self.buffer.view

    cpdef int received(self, Py_ssize_t size) except -1:
        """Deal with `size` bytes in `writable_view()`. `warren perf throughput` watches this."""
        cdef Py_ssize_t held = self.rest_size()
        self.received_bytes += size
        self.reads += 1
        if held:
            memcpy(self.buffer.data, PyBytes_AS_STRING(self.rest) + self.rest_at, held)
            self.rest = None
        return self.consume(self.buffer.data, 0, held + size)

    cdef Py_ssize_t rest_size(self) noexcept:
        return 0 if self.rest is None else PyBytes_GET_SIZE(self.rest) - self.rest_at

    cpdef int resume(self) except -1:
        """Go on after a suspension: first with deferred frames, then with the rest of what was read."""
        cdef bint behind = len(self.going_on) > 0
        cdef bytes rest
        self.suspended = False
        if behind:
            self.catch_up()
        rest = self.rest
        if rest is not None:
            return self.consume(<uint8_t*>PyBytes_AS_STRING(rest), self.rest_at, PyBytes_GET_SIZE(rest))
        return self.end_batch() if behind else 0

    def feed(self, data):
        """Deal with these bytes as if a socket had brought them; for tests."""
        cdef Py_ssize_t start = 0, size
        while start < len(data):
            view = self.writable_view()
            if not len(view):
                raise BufferError("suspended, and there is no room for more")
            size = min(len(view), len(data) - start)
            view[:size] = data[start:start + size]
            self.received(size)
            start += size

    cdef int consume(self, const uint8_t* p, Py_ssize_t start, Py_ssize_t size) except -1:
        """Deal with the bytes from `start` to `size`: of the shared buffer or, when resuming, of `rest`."""
        cdef bytes rest = self.rest
        self.at = start
        self.busy = True
        self.on_batch_begin()
        try:
            if not self.greeted and size - start >= GREETING_SIZE and not self.closing:
                self.greeted = True
                self.at += GREETING_SIZE
                self.on_greeting(PyBytes_FromStringAndSize(<char*>p + start, GREETING_SIZE))
            if self.greeted:
                self.run(p, size)
        finally:
            self.busy = False
        if self.at < size and rest is not None and self.suspended:
            self.rest_at = self.at
        elif self.at < size:
            self.rest = PyBytes_FromStringAndSize(<char*>p + self.at, size - self.at)
            self.rest_at = 0
        else:
            self.rest = None
        if self.going_on:
            self.catch_up()
        return self.end_batch()

    cdef int end_batch(self) except -1:
        if self.deferring:
            self.deferring = self.deferred_bytes > 0
            self.on_deferred()
        return self.on_batch_end()

    cdef int run(self, const uint8_t* p, Py_ssize_t size) except -1:
        cdef const uint8_t* head
        cdef uint32_t payload
        cdef uint16_t number = 0
        while True:
            try:
                while size - self.at >= FRAME_HEAD_SIZE and not self.suspended:
                    head = p + self.at
                    number = get16(head + 1)
                    payload = get32(head + 3)
                    if payload > self.frame_max:  # it includes the overhead, but some clients forget that
                        self.at = size
                        raise FrameError(f"frame of {payload} bytes is larger than frame_max {self.frame_max}")
                    if size - self.at < payload + FRAME_OVERHEAD:
                        break
                    if head[FRAME_HEAD_SIZE + payload] != FRAME_END:
                        self.at = size
                        raise FrameError("frame does not end with its end octet")
                    self.at += payload + FRAME_OVERHEAD
                    self.frame(head[0], number, head + FRAME_HEAD_SIZE, payload)
                    if self.budget.left <= 0 and self.at < size:
                        self.tire()
                return 0
            except Exception as error:
                self.on_error(number, error)

    cdef int tire(self) except -1:
        self.suspended = True
        return self.on_tired()

    cdef int frame(self, uint8_t kind, uint16_t number, const uint8_t* p, uint32_t size) except -1:
        if kind == FRAME_METHOD:
            return self.method_frame(number, p, size)
        if kind == FRAME_BODY or kind == FRAME_HEADER:
            return self.content_frame(kind, number, p, size)
        if self.closing:
            return 0
        if kind != FRAME_HEARTBEAT:
            raise FrameError(f"unknown frame type {kind}")
        if number != 0:
            raise UnexpectedFrame(f"heartbeat on channel {number}")
        return 0

    cdef ContentReader find(self, uint16_t number):
        if self.current is not None and self.current.number == number:
            return self.current
        found = self.channels.get(number)
        if found is not None:
            self.current = <ContentReader>found
        return <ContentReader>found

    cdef int content_frame(self, uint8_t kind, uint16_t number, const uint8_t* p, uint32_t size) except -1:
        cdef ContentReader channel
        if self.closing:
            return 0
        channel = self.find(number)
        if channel is None:
            raise ChannelFault(f"content frame on channel {number}, which is not open") \
                if number else UnexpectedFrame("content frame on channel 0")
        if channel.held:
            return self.defer(channel, kind, p, size)
        if channel.expecting == EXPECT_NOTHING:
            return 0
        if kind == FRAME_BODY:
            return channel.on_body(p, size)
        return channel.on_header(p, size)

    cdef int method_frame(self, uint16_t number, const uint8_t* p, uint32_t size) except -1:
        cdef ContentReader channel
        cdef uint32_t method
        if size < 4:
            raise SyntaxFault("method frame is too short")
        if number != 0 and not self.closing:
            channel = self.find(number)
            if channel is not None:
                if channel.held:
                    return self.defer(channel, FRAME_METHOD, p, size)
                if channel.expecting == EXPECT_METHOD:
                    method = get32(p)
                    if method == BASIC_PUBLISH:
                        channel.on_publish(p, size)
                        return self.block() if self.blocking else 0
                    if method == BASIC_ACK and size == ACK_SIZE:
                        self.budget.left -= 1
                        return channel.acked(get64(p + 4), p[12] & 1)
                elif channel.expecting != EXPECT_NOTHING:
                    raise UnexpectedFrame("method frame where content is due")
        elif number != 0:
            return 0
        self.budget.left -= METHOD_WORK
        return self.on_method(number, PyBytes_FromStringAndSize(<char*>p, size))

    cdef int block(self) except -1:
        self.suspended = True
        return self.on_blocked_publish()

    # --- channels that wait ---

    cdef int defer(self, ContentReader channel, uint8_t kind, const uint8_t* p, uint32_t size) except -1:
        if channel.deferred is None:
            channel.deferred = deque()
        channel.deferred.append((kind, PyBytes_FromStringAndSize(<char*>p, size)))
        channel.deferred_bytes += size + DEFERRED_OVERHEAD
        self.deferred_bytes += size + DEFERRED_OVERHEAD
        self.deferring = True
        return 0

    cpdef int go_on(self, ContentReader channel) except -1:
        """The channel waits no more: deal with its deferred frames as if they had just arrived.

        If a handler of this connection calls this, they come behind all other frames of the present read.
        """
        channel.waiting = False
        if not channel.deferred:
            channel.held = False
        elif channel not in self.going_on:
            self.going_on.append(channel)
        if self.busy:
            return 0
        self.catch_up()
        return self.end_batch()

    cdef int catch_up(self) except -1:
        """Deal with the deferred frames of all channels in `going_on`, until the reader is suspended."""
        cdef ContentReader channel
        self.busy = True
        try:
            while self.going_on and not self.suspended:
                channel = self.going_on[0]
                self.handle_deferred(channel)
                if self.going_on and (channel.waiting or not channel.deferred):
                    del self.going_on[0]
        finally:
            self.busy = False
        return 0

    cdef int handle_deferred(self, ContentReader channel) except -1:
        """Deal with a channel's deferred frames, until one makes the channel wait or suspends the reader.

        Frames behind a channel.close may be for the next channel of that number: each looks up its channel.
        """
        cdef uint8_t kind
        cdef bytes payload
        while channel.deferred and not channel.waiting and not self.suspended:
            kind, payload = channel.deferred.popleft()
            channel.deferred_bytes -= PyBytes_GET_SIZE(payload) + DEFERRED_OVERHEAD
            self.deferred_bytes -= PyBytes_GET_SIZE(payload) + DEFERRED_OVERHEAD
            channel.held = False
            try:
                self.frame(kind, channel.number, <uint8_t*>PyBytes_AS_STRING(payload), len(payload))
            except Exception as error:
                self.on_error(channel.number, error)
            if self.budget.left <= 0 and not self.suspended:
                self.tire()
        channel.held = channel.waiting or bool(channel.deferred)
        if not channel.deferred:
            channel.deferred = None
        return 0

    cdef int drop_deferred(self, ContentReader channel) except -1:
        self.deferred_bytes -= channel.deferred_bytes
        channel.deferred_bytes = 0
        channel.deferred = None
        channel.waiting = channel.held = False
        return 0

    cpdef int drop_all_deferred(self) except -1:
        """Forget all deferred frames: the connection ends."""
        for channel in [*self.going_on, *self.channels.values()]:
            self.drop_deferred(channel)
        self.going_on.clear()
        return 0
