cdef class Version:
    cdef public long number
    cpdef bump(self)
