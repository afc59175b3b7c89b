from libc.stdint cimport uint8_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.segment cimport Segment

cdef enum:
    LIKE_BYTES_MAX = 64 * 1024  # a message with a larger body is not kept for the sake of its properties


cdef class Window:
    cdef object files
    cdef Segment segment
    cdef Buffer chunk
    cdef Py_ssize_t at
    cdef Py_ssize_t step
    cdef Message like
    cdef bytes body

    cdef int load(self, Segment segment, Py_ssize_t offset, Py_ssize_t size, object problems) except -1
    cdef Py_ssize_t length(self, Segment segment, Py_ssize_t offset, uint64_t above) noexcept
    cdef const uint8_t* record(
        self, Segment segment, Py_ssize_t offset, uint64_t above, Py_ssize_t step, object problems, Py_ssize_t* length
    ) except? NULL
    cdef Py_ssize_t load_large(self, Segment segment, Py_ssize_t offset, Py_ssize_t size, object problems) except -1
    cdef bint read_body(self, Segment segment, Py_ssize_t offset, bytes body, object problems) except -1
    cdef bytes body_at(self, const uint8_t* p)
    cdef Message message_of(self, Segment segment, const uint8_t* p, Message like)
    cpdef Message read(self, Segment segment, Py_ssize_t offset, uint64_t position, object problems)
    cdef bint is_large(self)
    cdef bint let_go_of_large(self)
    cdef adapt(self, Segment segment, Py_ssize_t offset)
