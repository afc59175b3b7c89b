cdef class Memory:
    cdef public Py_ssize_t used_bytes
    cdef public Py_ssize_t limit_bytes
