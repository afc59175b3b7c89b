cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class Tally:
    cdef public uint64_t published
    cdef public uint64_t routed
    cdef public uint64_t with_confirms
    cdef public uint64_t confirmed
    cdef public uint64_t returned
    cdef public uint64_t dropped
    cdef public uint64_t delivered
    cdef public uint64_t delivered_no_ack
    cdef public uint64_t got
    cdef public uint64_t got_no_ack
    cdef public uint64_t got_empty
    cdef public uint64_t redelivered
    cdef public uint64_t acked

    @cython.locals(consumed_no_ack=uint64_t)
    cpdef tuple figures(self)
    cpdef add(self, Tally other)
