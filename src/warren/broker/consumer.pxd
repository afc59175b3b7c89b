cimport cython
from libc.stdint cimport uint64_t

from warren.broker.entry cimport Entry


cdef class View:
    pass


cdef class Consumer:
    cdef public str tag
    cdef public object origin
    cdef public bint no_ack
    cdef public bint exclusive
    cdef public int priority
    cdef public dict arguments
    cdef public object view
    cdef public bint cancelled

    cpdef bint can_take(self, Py_ssize_t size) except -1
    cpdef uint64_t deliver(self, Entry entry) except? 0
    cpdef settled(self, Entry entry)


@cython.final
cdef class Ring:
    cdef public int priority
    cdef public list consumers
    cdef Py_ssize_t turn
    cdef readonly Py_ssize_t tried

    @cython.locals(count=Py_ssize_t, consumer=Consumer)
    cpdef Consumer next_for(self, Py_ssize_t size)
