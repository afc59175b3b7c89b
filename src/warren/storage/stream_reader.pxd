from libc.stdint cimport uint8_t, uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport StreamReader
from warren.storage.cursor cimport Cursor
from warren.storage.stream_segment cimport Chunks, StreamSegment
from warren.storage.window cimport Window


cdef class LogReader(StreamReader):
    cdef list segments
    cdef Cursor cursor
    cdef Window shared
    cdef uint64_t wanted
    cdef object filter
    cdef list bits
    cdef bint match_unfiltered
    cdef Chunks chunks
    cdef bytes known
    cdef bint known_matches
    cdef bytes plain
    cdef bytes template
    cdef Py_ssize_t template_at

    cpdef Py_ssize_t ready(self) except? -3
    cpdef Message take(self)
    cpdef uint64_t next_position(self)
    cdef bint enter(self) except -1
    cdef bint go_to_next_segment(self) except -1
    cdef Py_ssize_t skip_chunks(self) except -1
    cdef bint matches(self, const uint8_t* p) except -1
    cdef share_window(self, StreamSegment segment)
    cdef bytes with_offset(self, const uint8_t* properties, Py_ssize_t size, uint64_t offset)
