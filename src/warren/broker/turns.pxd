# compiled: on the path of every turn
from warren.amqp.budget cimport Budget


cdef class Turns:
    cdef public object timers
    cdef public Budget budget
    cdef public object after
    cdef public object report
    cdef public object look_around
    cdef public object jobs
    cdef public list done_this_turn
    cdef public bint turn_is_planned
    cdef public long worked
    cdef public bint sharing

    cpdef begin_share(self)
    cpdef end_share(self)
    cpdef begin_draining(self)
    cpdef end_draining(self)
    cpdef plan_turn(self)
