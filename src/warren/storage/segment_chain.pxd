cimport cython
from libc.stdint cimport uint64_t

from warren.storage.commit cimport GroupCommit
from warren.storage.log_tap cimport LogTap
from warren.storage.segment cimport Segment


cdef class SegmentChain:
    cdef readonly object directory
    cdef readonly list all
    cdef public Py_ssize_t segment_bytes
    cdef readonly Segment tail
    cdef public uint64_t epoch
    cdef public LogTap tap
    cdef GroupCommit commit

    @cython.locals(tail=Segment)
    cpdef Segment tail_for(self, uint64_t position)
