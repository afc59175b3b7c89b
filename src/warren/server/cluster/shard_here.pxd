# compiled: on the path of every batch

from warren.cluster.safety cimport ShardSafety


cdef class ShardHere:
    cdef readonly object number
    cdef public object copies
    cdef public object led
    cdef public ShardSafety safety
    cdef readonly dict indexes
    cdef readonly object has_queue
    cdef readonly object failed
    cdef object steps
    cdef long long taken
    cdef bint is_stepping
