from libc.stdint cimport uint8_t, uint32_t

from warren.broker.message cimport Message


cdef class Block:
    cdef uint8_t* data
    cdef uint32_t size
    cdef uint32_t at
    cdef list messages
    cdef Message template


cdef class Pack:
    cdef object blocks
    cdef Block first
    cdef Block last
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t bytes

    cdef Block room(self, Py_ssize_t size)
    cpdef append(self, Message message)
    cpdef Message pop(self)
