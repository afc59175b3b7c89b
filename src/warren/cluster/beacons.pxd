# compiled: on the path of every batch

cdef class Lease:
    cdef public double seconds
    cdef public dict echoed

    cpdef bint holds(self, others, double now) except -1


cdef class Patience:
    cdef public double seconds
    cdef public double heard_at

    cpdef hear(self, double now)
