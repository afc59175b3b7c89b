# compiled: on the path of every batch

cdef class LogSteps:
    cdef object tools
    cdef object steps
    cdef bint busy

    cpdef do(self, step)
