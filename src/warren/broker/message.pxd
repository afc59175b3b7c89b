cimport cython


@cython.final
cdef class Message:
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef readonly bytes properties
    cdef readonly bytes body
    cdef readonly bint persistent
