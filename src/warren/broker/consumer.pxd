cimport cython
from libc.stdint cimport uint64_t

from warren.broker.deliveries cimport Deliveries
from warren.broker.entry cimport Entry


@cython.final
cdef class Consumer:
    cdef public str tag
    cdef public object queue
    cdef public object channel
    cdef public Deliveries deliveries
    cdef public bytes prefix
    cdef public bint no_ack
    cdef public bint exclusive
    cdef public int priority
    cdef public dict arguments
    cdef public Py_ssize_t prefetch_count
    cdef public Py_ssize_t prefetch_size
    cdef public Py_ssize_t unacked
    cdef public Py_ssize_t unacked_bytes
    cdef public object view
    cdef public bint cancelled

    cpdef bint can_take(self, Py_ssize_t size)
    cpdef uint64_t deliver(self, Entry entry)
    cpdef settled(self, Entry entry)


@cython.final
cdef class Ring:
    cdef public int priority
    cdef public list consumers
    cdef Py_ssize_t turn
    cdef readonly Py_ssize_t tried

    @cython.locals(count=Py_ssize_t, consumer=Consumer)
    cpdef Consumer next_for(self, Py_ssize_t size)
