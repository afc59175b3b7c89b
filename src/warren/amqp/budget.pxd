cdef class Budget:
    cdef public long left
