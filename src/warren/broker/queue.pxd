cimport cython
from libc.stdint cimport uint64_t

from warren.broker.consumer cimport Consumer, Ring
from warren.broker.entry cimport Entry
from warren.broker.entry_list cimport EntryList
from warren.broker.events cimport Events
from warren.broker.memory cimport Memory
from warren.broker.message cimport Message
from warren.broker.pack cimport Pack
from warren.broker.store cimport MessageLog

cdef Py_ssize_t READY_BYTES_MAX


cdef class Queue:
    cdef public str name
    cdef public str vhost
    cdef public bint durable
    cdef public bint auto_delete
    cdef public object owner
    cdef public dict arguments
    cdef public object rules
    cdef public set incoming
    cdef public object flow
    cdef public bint holding
    cdef public bint deleted
    cdef public bint had_consumer
    cdef public Consumer exclusive_consumer
    cdef public EntryList ready
    cdef public Py_ssize_t ready_max
    cdef public MessageLog log
    cdef public Pack packed
    cdef public MessageLog overflow
    cdef Memory memory
    cdef object open_overflow
    cdef public Py_ssize_t unacked
    cdef public uint64_t position
    cdef public uint64_t delivered
    cdef public uint64_t delivered_bytes
    cdef list rings
    cdef list touched_queues
    cdef bint touched
    cdef Events events

    @cython.locals(waits=bint, log=MessageLog)
    cpdef bint publish(self, Message message) except? 0
    cdef bint has_behind(self)
    @cython.locals(full=bint)
    cpdef put_behind(self, Message message)
    cpdef touch(self)
    @cython.locals(stored=uint64_t, aside=uint64_t)
    cpdef read_on(self)
    @cython.locals(room=Py_ssize_t, position=uint64_t)
    cpdef unpack(self, uint64_t before)
    cpdef goes_out(self, Entry entry, bint no_ack)
    cpdef note_delivered(self, Entry entry)
    @cython.locals(consumer=Consumer, head=Entry, entry=Entry, delivery_tag=uint64_t)
    cpdef drain(self)
    @cython.locals(ring=Ring, consumer=Consumer)
    cpdef Consumer next_consumer(self, Py_ssize_t size)
    cpdef settle(self, Entry entry)
    cpdef requeue(self, Entry entry)
    @cython.locals(entry=Entry)
    cpdef Entry get(self, bint no_ack)
