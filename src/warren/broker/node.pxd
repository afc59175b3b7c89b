# compiled: on the path of every turn
cimport cython

from warren.amqp.budget cimport Budget
from warren.amqp.writer cimport Output
from warren.broker.clock cimport Clock
from warren.broker.events cimport Events
from warren.broker.memory cimport Memory
from warren.broker.turns cimport Turns


cdef class Node:
    cdef public object world
    cdef public object limits
    cdef public object exchange_types
    cdef readonly str name
    cdef public str cluster_name
    cdef public object store
    cdef readonly object safety
    cdef public Clock clock
    cdef public Turns turns
    cdef public Memory memory
    cdef public object timetable
    cdef public object handover
    cdef public Events events
    cdef public dict vhosts
    cdef readonly object gone
    cdef public dict users
    cdef public object parameters
    cdef public object attempts
    cdef public object passwords
    cdef readonly object logins
    cdef public dict clients
    cdef object client_ids
    cdef object on_last_client
    cdef public list touched_queues
    cdef public object before_draining
    cdef public list dirty_outputs
    cdef public set alarms
    cdef bint checking_consumers
    cdef object changes
    cdef bint is_changing
    cdef public object proposer
    cdef public object post

    @cython.locals(turns=Turns, budget=Budget, queues=list, drained=Py_ssize_t, left=long)
    cpdef drain(self)
    cpdef _drain_one(self, queue)
    @cython.locals(outputs=list)
    cpdef end_turn(self)
    cpdef _flush(self, Output output)
