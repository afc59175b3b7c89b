# compiled: a start reads very many definitions

cdef class Definitions:
    cdef readonly dict live
    cdef readonly dict numbers
    cdef readonly dict hanging
    cdef public object next_queue_number
    cdef public list pending
    cdef public Py_ssize_t lines

    cpdef lacks(self, needs)
    cpdef fold(self, command, key, needs, line, number)
    cdef _put(self, key, needs, line)
    cdef _remove(self, key)
    cdef _unhang(self, key, need)
