from libc.stdint cimport int64_t, uint8_t


cdef class Buffer:
    cdef uint8_t* data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity

    cdef uint8_t* room(self, Py_ssize_t size) except NULL


cdef class Operation:
    cdef readonly int kind
    cdef readonly int file
    cdef readonly object data
    cdef readonly int64_t offset
    cdef readonly bytes path
    cdef readonly bytes target


cdef struct Step:
    int kind
    int file
    const uint8_t* data
    Py_ssize_t size
    int64_t offset
    const char* path
    const char* target


cdef class Disk:
    cdef Step* steps
    cdef Py_ssize_t count
    cdef int error
    cdef bint stopping
    cdef int wake
    cdef readonly int done
    cdef object thread
    cdef list operations

    cdef void work(self) noexcept nogil
