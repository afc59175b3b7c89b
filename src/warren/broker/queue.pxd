cimport cython
from libc.stdint cimport uint64_t

from warren.amqp.budget cimport Budget
from warren.broker.clock cimport Clock
from warren.broker.consumer cimport Consumer
from warren.broker.entry cimport Entry
from warren.broker.events cimport Events
from warren.broker.message cimport Message
from warren.broker.tally cimport Tally


cdef class Queue:
    cdef public str name
    cdef public str vhost
    cdef public object surroundings
    cdef public bint durable
    cdef public bint auto_delete
    cdef public object owner
    cdef public dict arguments
    cdef public object rules
    cdef public object incoming
    cdef public object flow
    cdef public bint holding
    cdef public Py_ssize_t returning
    cdef public bint paused
    cdef public str unavailable
    cdef public bint deleted
    cdef public bint is_here
    cdef public bint retired
    cdef public object replace
    cdef public Queue replaced_by
    cdef public bint had_consumer
    cdef public Consumer exclusive_consumer
    cdef public object safety
    cdef public Py_ssize_t unacked
    cdef readonly Tally tally
    cdef readonly Tally type_tally
    cdef public uint64_t delivered_bytes
    cdef public object history
    cdef list touched_queues
    cdef readonly Budget budget
    cdef readonly bint touched
    cdef readonly Clock clock
    cdef readonly Events events

    cpdef int publish(self, Message message) except -1
    cpdef touch(self)
    cpdef drain(self)
    cpdef settle(self, Entry entry)
    cpdef requeue(self, Entry entry)
    cpdef reject(self, Entry entry)
    cpdef take_back(self, Entry entry)
    cpdef forget(self, Entry entry)
    cpdef Entry get(self, bint no_ack)
    cpdef tell_delivered(self, Entry entry, origin, str consumer_tag, uint64_t delivery_tag)
    @cython.locals(budget=Budget, left=long)
    cpdef tell_drained(self, Entry entry, Consumer consumer, uint64_t delivery_tag)
    cpdef Py_ssize_t length(self) except -1
    cpdef Py_ssize_t body_bytes(self) except -1
