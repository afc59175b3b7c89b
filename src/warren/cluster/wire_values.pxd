# compiled: on the path of every batch

cdef class Reader:
    cdef readonly bytes data
    cdef readonly Py_ssize_t at
    cdef readonly Py_ssize_t limit

    cpdef tuple take(self, layout)
    cpdef Py_ssize_t count(self, Py_ssize_t largest, Py_ssize_t size) except -1
    cpdef bytes raw(self, Py_ssize_t length)
    cpdef text(self)
    cpdef text_of(self, Py_ssize_t length)
    cpdef log(self)
    cpdef bytes long_data(self)
