cdef class LogTap:
    cdef readonly object log
    cdef list changed
    cdef bint noted
    cdef object read
    cdef list growing
    cdef readonly object highest
    cdef list marks
    cdef list others

    cpdef note(self)
