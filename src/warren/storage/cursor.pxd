from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.segment cimport Segment


cdef class Cursor:
    cdef readonly Segment segment
    cdef readonly Py_ssize_t offset
    cdef readonly uint64_t above
    cdef readonly uint32_t deliveries
    cdef readonly Py_ssize_t taken_bytes
    cdef object files
    cdef object problems
    cdef Message like
    cdef Buffer chunk
    cdef Py_ssize_t chunk_at

    cpdef move(self, Segment segment, Py_ssize_t offset)
    cpdef skip_to_end(self, Segment segment)
    cpdef uint64_t position(self) except? 0
    cpdef Message take(self)
    cdef const uint8_t* record(self, Py_ssize_t* length) except? NULL
    cdef const uint8_t* record_in_file(self, Py_ssize_t* length) except? NULL
    cdef Py_ssize_t known_length(self) noexcept
    cdef load(self, Py_ssize_t size)
    cdef find_next(self)
