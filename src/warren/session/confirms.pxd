cimport cython
from libc.stdint cimport uint16_t, uint64_t

from warren.amqp.writer cimport Output

cdef int STORED
cdef int AFTER_NEXT
cdef int REFUSED


@cython.final
cdef class Confirms:
    cdef Output output
    cdef uint16_t channel
    cdef public bint on
    cdef public uint64_t published
    cdef uint64_t confirmed
    cdef public uint64_t refusals
    cdef object refused
    cdef public bint unsafe
    cdef public bint unsafe_longer
    cdef readonly object safety
    cdef dict elsewhere
    cdef object awaited
    cdef dict asked_for
    cdef dict over

    cpdef note(self, int outcome, safety)
    cpdef end_batch(self)
    @cython.locals(confirmed=uint64_t)
    cpdef _ack_up_to(self, uint64_t count)
