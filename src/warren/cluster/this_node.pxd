# compiled: on the path of every batch

cdef class ThisNode:
    cdef public object me
    cdef public object settings
    cdef public object rules
    cdef public object new_session
    cdef public list effects
    cdef public object etcd
    cdef public dict acks
    cdef public dict links
    cdef public set refused
    cdef public set farewells
    cdef public set avoided
    cdef public dict preferred
    cdef public double preferred_at
    cdef public bint is_draining
    cdef public bint is_leaving
    cdef public object disk_failing_since
    cdef public long long token

    cpdef next_token(self)
