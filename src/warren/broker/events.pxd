cdef class Events:
    cdef object on_error
    cdef dict subscribers
    cdef public bint published
    cdef public bint delivered
    cdef public bint acked
    cdef public bint died
