from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from warren.amqp.budget cimport Budget


cdef class ReadBuffer:
    cdef readonly bytearray memory
    cdef readonly object view           # a memoryview of it
    cdef uint8_t* data                  # its address
    cdef Py_ssize_t capacity


cdef class ContentReader:
    cdef readonly uint16_t number       # the channel's
    cdef public uint64_t body_bytes_max # a larger message is refused
    cdef uint8_t expecting              # which frame is due
    cdef bint held                      # frames are deferred: the channel waits, or has deferred frames left
    cdef readonly bint waiting          # until `go_on`
    cdef readonly object deferred       # a deque of (kind, payload), or None
    cdef readonly Py_ssize_t deferred_bytes
    # the last basic.publish
    cdef bytes publish_payload          # None if there was none, or if it was malformed
    cdef readonly bytes exchange        # with its length octet, as the routing key
    cdef readonly bytes routing_key
    cdef readonly bint mandatory
    cdef readonly bint immediate
    cdef public bint publish_changed    # the subclass has not looked at it yet
    # the last content header
    cdef public bytes properties        # None if there were none, or if they were malformed
    cdef public bint properties_changed # the subclass has not looked at them yet
    cdef uint64_t body_size
    # a body in several frames
    cdef uint64_t body_left             # how much of it has not arrived
    cdef bytes body                     # all of its memory; None before its first frame, and for a single one
    cdef uint64_t awaited               # what `awaited_bytes()` counts of this body
    # what scanning the properties found
    cdef readonly uint8_t delivery_mode
    cdef readonly bint has_routing_headers   # CC or BCC
    cdef readonly bytes expiration      # None if not set, as the next two
    cdef readonly bytes user_id
    cdef readonly bytes reply_to

    cpdef int discard(self) except -1
    cpdef int wait(self) except -1
    cpdef int published(self, bytes body) except -1
    cpdef int acked(self, uint64_t delivery_tag, bint multiple) except -1
    cdef int on_publish(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_header(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_body(self, const uint8_t* p, uint32_t size) except -1
    cdef int parse_publish(self, const uint8_t* p, Py_ssize_t size) except -1
    cdef void await_bytes(self, uint64_t size) noexcept
    cdef int complete(self, bytes body) except -1
    cdef int scan(self, const uint8_t* p, Py_ssize_t size) except -1


cdef class FrameReader:
    cdef ReadBuffer buffer
    cdef readonly dict channels         # by number
    cdef ContentReader current          # the channel of the last frame, which the next one is probably for
    cdef public uint32_t frame_max      # as negotiated
    cdef public bint greeted            # the protocol header has arrived
    cdef public bint suspended          # stopped between two frames, until `resume`
    cdef public bint blocking           # the next basic.publish suspends the reader
    cdef public Budget budget           # when it is used up, the reader is suspended
    cdef public bint closing            # only methods of channel 0 still count
    cdef public uint64_t received_bytes # since the connection began
    cdef readonly uint64_t reads        # that brought them
    cdef public Py_ssize_t read_bytes_max    # how much to read at once; 0 for as much as fits
    cdef bytes rest                     # bytes that were read and are not dealt with: from `rest_at` on
    cdef Py_ssize_t rest_at
    cdef readonly Py_ssize_t at         # how far `consume` has come in the bytes of one read
    cdef bint busy                      # frames are being dealt with: `go_on` leaves its own for later
    cdef list going_on                  # channels that wait no more, but have deferred frames left
    cdef readonly Py_ssize_t deferred_bytes  # of all channels, with DEFERRED_OVERHEAD for each frame
    cdef bint deferring                 # `on_deferred` is to be called at the end of the batch

    cpdef add_channel(self, ContentReader channel)
    cpdef remove_channel(self, uint16_t number)
    cpdef object writable_view(self)
    cpdef int received(self, Py_ssize_t size) except -1
    cpdef int resume(self) except -1
    cpdef int on_method(self, uint16_t number, bytes payload) except -1
    cpdef int on_error(self, uint16_t number, error) except -1
    cpdef int on_greeting(self, bytes greeting) except -1
    cpdef int on_batch_begin(self) except -1
    cpdef int on_batch_end(self) except -1
    cpdef int on_tired(self) except -1
    cpdef int on_blocked_publish(self) except -1
    cpdef int on_deferred(self) except -1
    cdef int end_batch(self) except -1
    cdef Py_ssize_t rest_size(self) noexcept
    cdef int consume(self, const uint8_t* p, Py_ssize_t start, Py_ssize_t size) except -1
    cdef int tire(self) except -1
    cdef int block(self) except -1
    cdef int run(self, const uint8_t* p, Py_ssize_t size) except -1
    cdef int frame(self, uint8_t kind, uint16_t number, const uint8_t* p, uint32_t size) except -1
    cdef int method_frame(self, uint16_t number, const uint8_t* p, uint32_t size) except -1
    cdef int content_frame(self, uint8_t kind, uint16_t number, const uint8_t* p, uint32_t size) except -1
    cdef ContentReader find(self, uint16_t number)
    cdef int defer(self, ContentReader channel, uint8_t kind, const uint8_t* p, uint32_t size) except -1
    cpdef int go_on(self, ContentReader channel) except -1
    cdef int catch_up(self) except -1
    cdef int handle_deferred(self, ContentReader channel) except -1
    cdef int drop_deferred(self, ContentReader channel) except -1
    cpdef int drop_all_deferred(self) except -1
