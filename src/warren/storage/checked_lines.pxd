# compiled: a start reads very many lines

cdef class Line:
    cdef readonly Py_ssize_t number
    cdef readonly Py_ssize_t offset
    cdef readonly bytes raw
    cdef readonly bint intact
