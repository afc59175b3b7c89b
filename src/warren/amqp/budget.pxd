cdef class Budget:
    cdef public long left
    cdef public long draining
