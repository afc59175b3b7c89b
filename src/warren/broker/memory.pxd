cdef class Memory:
    cdef public Py_ssize_t used_bytes
    cdef public Py_ssize_t limit_bytes
    cdef public Py_ssize_t lent_bytes
    cdef public Py_ssize_t ready_limit_bytes
    cdef readonly dict borrowers
    cdef readonly dict shrinking
    cdef readonly dict laden
    cdef object later
    cdef bint is_scheduled

    cpdef bint lend(self, object lane, Py_ssize_t more) except -1
    cpdef take_back(self, object lane, Py_ssize_t lent)
    cpdef shrink_soon(self, object lane)
