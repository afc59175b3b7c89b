cimport cython
from libc.stdint cimport uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport StreamLog
from warren.storage.commit cimport GroupCommit
from warren.storage.stream_segment cimport StreamSegment
from warren.storage.window cimport Window


cdef class SegmentedStream(StreamLog):
    cdef readonly str path
    cdef readonly object directory
    cdef readonly list segments
    cdef uint64_t before
    cdef object problems
    cdef object named
    cdef Py_ssize_t segment_bytes_usual
    cdef Py_ssize_t segment_bytes
    cdef GroupCommit commit
    cdef Window window
    cdef StreamSegment tail
    cdef bytes known
    cdef bytes values

    @cython.locals(tail=StreamSegment, end=Py_ssize_t)
    cpdef append(self, Message message, uint64_t position, uint64_t time_ms)
