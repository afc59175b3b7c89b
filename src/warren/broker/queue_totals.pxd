# compiled because every scrape of the metrics passes all queues through it
cimport cython

from warren.broker.queue cimport Queue
from warren.broker.stream cimport Stream


cdef class QueueTotals:
    cdef readonly Py_ssize_t queues
    cdef readonly Py_ssize_t ready
    cdef readonly Py_ssize_t ready_bytes
    cdef readonly Py_ssize_t unacked
    cdef readonly Py_ssize_t consumers
    cdef readonly Py_ssize_t stream_lag_max

    @cython.locals(queue=Queue)
    cpdef add(self, list queues)
