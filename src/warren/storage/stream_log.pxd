cimport cython
from libc.stdint cimport uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport StreamLog
from warren.storage.commit cimport GroupCommit
from warren.storage.log_tap cimport LogTap
from warren.storage.segment_chain cimport SegmentChain
from warren.storage.stream_reader cimport Reach
from warren.storage.stream_segment cimport StreamSegment
from warren.storage.window cimport Window


cdef class SegmentedStream(StreamLog):
    cdef readonly list segments
    cdef readonly SegmentChain chain
    cdef uint64_t before
    cdef object problems
    cdef object named
    cdef Py_ssize_t segment_bytes_usual
    cdef GroupCommit commit
    cdef LogTap tap
    cdef Window window
    cdef readonly Reach reach
    cdef object gate
    cdef object tell
    cdef bytes known
    cdef bytes values

    @cython.locals(tail=StreamSegment, end=Py_ssize_t)
    cpdef append(self, Message message, uint64_t position, uint64_t time_ms)
