cimport cython
from libc.stdint cimport uint64_t

from warren.broker.consumer cimport Consumer, Ring
from warren.broker.entry cimport Entry
from warren.broker.entry_list cimport EntryList
from warren.broker.events cimport Events
from warren.broker.message cimport Message
from warren.broker.pack cimport Pack


cdef class Queue:
    cdef public str name
    cdef public str vhost
    cdef public bint durable
    cdef public bint auto_delete
    cdef public object owner
    cdef public dict arguments
    cdef public set incoming
    cdef public object flow
    cdef public bint holding
    cdef public bint deleted
    cdef public bint had_consumer
    cdef public Consumer exclusive_consumer
    cdef public EntryList ready
    cdef public Pack packed
    cdef public Py_ssize_t unpacked_max
    cdef public Py_ssize_t unacked
    cdef public uint64_t position
    cdef public uint64_t delivered
    cdef public uint64_t delivered_bytes
    cdef list rings
    cdef list touched_queues
    cdef bint touched
    cdef Events events

    cpdef publish(self, Message message)
    cpdef touch(self)
    @cython.locals(room=Py_ssize_t, position=uint64_t)
    cpdef unpack(self)
    @cython.locals(consumer=Consumer, head=Entry, entry=Entry, delivery_tag=uint64_t)
    cpdef drain(self)
    @cython.locals(ring=Ring, consumer=Consumer)
    cpdef Consumer next_consumer(self, Py_ssize_t size)
    cpdef settle(self, Entry entry)
    cpdef requeue(self, Entry entry)
    @cython.locals(entry=Entry)
    cpdef Entry get(self, bint no_ack)
