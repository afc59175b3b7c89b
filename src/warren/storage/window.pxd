from libc.stdint cimport uint8_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.segment cimport Segment

cdef enum:
    LIKE_BYTES_MAX = 64 * 1024  # a message with a larger body is not kept for the sake of its properties


cdef class Window:
    cdef object files     # opens the segment's file
    cdef Segment segment  # the one whose bytes are in the chunk
    cdef Buffer chunk     # the bytes
    cdef Py_ssize_t at    # the offset at which the chunk begins
    cdef Py_ssize_t step  # how many bytes are read with a single record
    cdef Message like     # the message before, with which the next may share strings
    cdef bytes body       # of the large record at `at`, of which the chunk has only what is before the body

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
