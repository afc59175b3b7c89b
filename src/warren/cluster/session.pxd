# compiled: on the path of every batch

cdef class Session:
    cdef public object store
    cdef public object session
    cdef public double begun_at
    cdef public object trying_since
    cdef public long long number
    cdef public object unacked
    cdef public long long in_flight
    cdef public long long acked
    cdef public object catchup
    cdef public bint asks_for_turn
    cdef public bint is_counted
    cdef public object in_step_since
    cdef public bint is_damaged
