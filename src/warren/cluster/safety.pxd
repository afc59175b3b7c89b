# compiled: on the path of every batch

cdef class ShardSafety:
    cdef public object later
    cdef public long long gathering
    cdef public bint owes
    cdef public bint is_held
    cdef public long long committed
    cdef public bint has_ended
    cdef public long long wanted
    cdef public object waiters
    cdef public object publishers
