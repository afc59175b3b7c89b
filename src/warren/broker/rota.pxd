cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class Rota:
    cdef readonly dict line
    cdef readonly object first
    cdef list all_touched
    cdef bint touched
    cdef bint full
    cdef uint64_t taken

    cpdef bint admits(self, object queue, bint has_room) except -1
    cpdef took(self, object queue)
    cpdef leave(self, object queue)
    cpdef touch(self)
