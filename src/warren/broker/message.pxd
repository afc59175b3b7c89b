cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t


@cython.final
cdef class Message:
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef readonly bytes properties
    cdef readonly bytes body
    cdef readonly uint64_t time_ms
    cdef readonly int64_t expiration_ms
    cdef readonly uint8_t priority
    cdef readonly bint persistent
    cdef readonly bint died
    cdef readonly bint scheduled
