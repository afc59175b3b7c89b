cdef class Countdown:
    cdef public Py_ssize_t every
    cdef Py_ssize_t left

    cpdef bint is_next(self)


cdef class Events:
    cdef public Countdown publishing
    cdef public Countdown delivering
    cdef public Countdown acking
    cdef object on_error
    cdef dict subscribers
    cdef Py_ssize_t firehoses
    cdef public bint published
    cdef public bint delivered
    cdef public bint acked
    cdef public bint died
