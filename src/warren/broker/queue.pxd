cimport cython
from libc.stdint cimport uint64_t

from warren.amqp.budget cimport Budget
from warren.broker.clock cimport Clock
from warren.broker.consumer cimport Consumer, Ring
from warren.broker.entry cimport Entry
from warren.broker.events cimport Events
from warren.broker.lane cimport Lane
from warren.broker.message cimport Message
from warren.broker.rulebook cimport Rulebook


cdef long DELIVERED_AT_A_TIME_MAX
cdef Py_ssize_t TRIED_FOR_A_UNIT


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
    cdef public bint deleted
    cdef public bint had_consumer
    cdef public Consumer exclusive_consumer
    cdef public Py_ssize_t unacked
    cdef public uint64_t delivered
    cdef public uint64_t delivered_bytes
    cdef public list lanes
    cdef public Lane lane
    cdef public Rulebook book
    cdef public list rings
    cdef public list choosy
    cdef list touched_queues
    cdef Budget budget
    cdef readonly bint touched
    cdef readonly Clock clock
    cdef Events events

    @cython.locals(unsafe=bint)
    cpdef int publish(self, Message message) except -1
    cpdef touch(self)
    cpdef drain(self)
    @cython.locals(
        lane=Lane,
        delivered=uint64_t,
        most=uint64_t,
        head=Entry,
        entry=Entry,
        consumer=Consumer,
        delivery_tag=uint64_t,
    )
    cpdef drain_lane(self)
    cpdef uint64_t most_to_deliver(self)
    @cython.locals(delivery_tag=uint64_t)
    cpdef deliver(self, Entry entry, Consumer consumer)
    @cython.locals(lane=Lane)
    cpdef goes_out(self, Entry entry, bint no_ack)
    cpdef Lane lane_of(self, Entry entry)
    cpdef Py_ssize_t level_of(self, Message message)
    @cython.locals(ring=Ring, consumer=Consumer)
    cpdef Consumer next_consumer(self, Py_ssize_t size)
    cpdef settle(self, Entry entry)
    @cython.locals(lane=Lane)
    cpdef forget(self, Entry entry)
    cpdef requeue(self, Entry entry)
    cpdef bury(self, Entry entry, object reason)
    @cython.locals(redelivered=bint)
    cpdef tell_delivered(self, Entry entry, channel, str consumer_tag, uint64_t delivery_tag)
    @cython.locals(entry=Entry)
    cpdef Entry get(self, bint no_ack)
    @cython.locals(length=Py_ssize_t, lane=Lane)
    cpdef Py_ssize_t length(self)
    @cython.locals(total=Py_ssize_t, lane=Lane)
    cpdef Py_ssize_t body_bytes(self)
