from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from warren.amqp.budget cimport Budget


cdef class ReadBuffer:
    cdef readonly bytearray memory
    cdef readonly object view
    cdef uint8_t* data
    cdef Py_ssize_t capacity


cdef class ContentReader:
    cdef readonly uint16_t number
    cdef public uint64_t body_bytes_max
    cdef uint8_t expecting
    cdef bint held
    cdef readonly bint waiting
    cdef readonly object deferred
    cdef readonly Py_ssize_t deferred_bytes
    cdef bytes publish_payload
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef readonly bint mandatory
    cdef readonly bint immediate
    cdef public bint publish_changed
    cdef public bytes properties
    cdef public bint properties_changed
    cdef uint64_t body_size
    cdef uint64_t body_left
    cdef bytes body
    cdef uint64_t awaited
    # what scanning the properties found
    cdef readonly uint8_t delivery_mode
    cdef readonly bint has_routing_headers
    cdef readonly bytes expiration
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
    cdef readonly dict channels
    cdef ContentReader current
    cdef public uint32_t frame_max
    cdef public bint greeted
    cdef public bint suspended
    cdef public bint blocking
    cdef public Budget budget
    cdef public bint closing
    cdef public uint64_t received_bytes
    cdef public Py_ssize_t read_bytes_max
    cdef bytes rest
    cdef Py_ssize_t rest_at
    cdef Py_ssize_t at
    cdef bint busy
    cdef list going_on
    cdef readonly Py_ssize_t deferred_bytes
    cdef bint deferring

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
