cimport cython
from libc.stdint cimport uint16_t, uint64_t

from warren.amqp.writer cimport Output
from warren.broker.entry cimport Entry
from warren.broker.message cimport Message
from warren.broker.rota cimport Rota
from warren.broker.tally cimport Tally


@cython.final
cdef class Deliveries:
    cdef public Output output
    cdef public uint16_t channel
    cdef readonly Tally tally
    cdef public bint active
    cdef public uint64_t delivery_tag
    cdef public Py_ssize_t outstanding
    cdef public Py_ssize_t counted
    cdef public Py_ssize_t counted_bytes
    cdef public Py_ssize_t prefetch_count
    cdef public Py_ssize_t prefetch_size
    cdef public Rota rota
    cdef list slots
    cdef Py_ssize_t first
    cdef uint64_t base
    cdef dict old

    cpdef bint has_room(self, Py_ssize_t size)
    @cython.locals(message=Message, properties=bytes)
    cpdef uint64_t send(self, Entry entry, bytes prefix, bint no_ack)
    cpdef track(self, Entry entry, bint no_ack)
    cdef _note(self, Entry entry, bint no_ack)
    @cython.locals(index=Py_ssize_t, stop=Py_ssize_t, entry=Entry)
    cpdef set queues_up_to(self, uint64_t delivery_tag)
    cdef Py_ssize_t _index_behind(self, uint64_t delivery_tag)
    @cython.locals(index=Py_ssize_t, entry=Entry)
    cpdef Entry take(self, uint64_t delivery_tag)
    @cython.locals(index=Py_ssize_t, stop=Py_ssize_t, taken=list)
    cpdef list take_up_to(self, uint64_t delivery_tag, Py_ssize_t most=*)
    cpdef Entry find(self, uint64_t delivery_tag)
    cpdef bint is_outstanding(self, uint64_t delivery_tag)
    @cython.locals(size=Py_ssize_t, index=Py_ssize_t)
    cpdef settle_front(self)
