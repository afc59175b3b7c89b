cimport cython
from libc.stdint cimport uint64_t

from warren.broker.consumer cimport Consumer
from warren.broker.entry cimport Entry
from warren.session.deliveries cimport Deliveries


cdef class ChannelConsumer(Consumer):
    cdef public object queue
    cdef public object channel
    cdef public Deliveries deliveries
    cdef public bytes prefix
    cdef public Py_ssize_t prefetch_count
    cdef public Py_ssize_t prefetch_size
    cdef public Py_ssize_t unacked
    cdef public Py_ssize_t unacked_bytes

    @cython.locals(deliveries=Deliveries)
    cpdef bint can_take(self, Py_ssize_t size) except -1
    cpdef uint64_t deliver(self, Entry entry) except? 0
    cpdef settled(self, Entry entry)
