# compiled: on the path of every batch

from warren.storage.log_steps cimport LogSteps
from warren.storage.segment_copies cimport SegmentCopies


cdef class ReplicaLog:
    cdef public object shard
    cdef public object log
    cdef public object directory
    cdef object tools
    cdef object on_mismatch
    cdef public SegmentCopies copies
    cdef public object named
    cdef public object highest_base
    cdef public object highest_epoch
    cdef public dict removing
    cdef public LogSteps steps
    cdef public bint removed
    cdef public list parts
