cimport cython
from libc.stdint cimport uint64_t

from warren.amqp.budget cimport Budget
from warren.broker.consumer cimport Consumer, Ring
from warren.broker.entry cimport Entry
from warren.broker.lane cimport Lane
from warren.broker.message cimport Message
from warren.broker.queue cimport Queue
from warren.broker.rulebook cimport Rulebook
from warren.broker.tally cimport Tally


cdef long DELIVERED_AT_A_TIME_MAX
cdef long MARKED_AT_A_TIME_MAX
cdef Py_ssize_t TRIED_FOR_A_UNIT


cdef class ClassicQueue(Queue):
    cdef public list lanes
    cdef public Lane lane
    cdef public Rulebook book
    cdef public list rings
    cdef public list choosy

    @cython.locals(unsafe=bint)
    cpdef int publish(self, Message message) except -1
    cpdef touch(self)
    cpdef drain(self)
    @cython.locals(
        is_enough=bint,
        lane=Lane,
        tally=Tally,
        budget=Budget,
        delivered=uint64_t,
        left=long,
        most=long,
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
    cdef void count_delivered(self, Entry entry, bint no_ack) noexcept
    cpdef Lane lane_of(self, Message message)
    @cython.locals(ring=Ring, consumer=Consumer)
    cpdef Consumer next_consumer(self, Py_ssize_t size)
    cpdef settle(self, Entry entry)
    @cython.locals(lane=Lane)
    cpdef forget(self, Entry entry)
    cpdef requeue(self, Entry entry)
    cpdef take_back(self, Entry entry)
    cpdef reject(self, Entry entry)
    cpdef bury(self, Entry entry, object reason)
    @cython.locals(entry=Entry)
    cpdef Entry get(self, bint no_ack)
    @cython.locals(length=Py_ssize_t, lane=Lane)
    cpdef Py_ssize_t length(self) except -1
    @cython.locals(total=Py_ssize_t, lane=Lane)
    cpdef Py_ssize_t body_bytes(self) except -1
