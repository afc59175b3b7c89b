from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.memory cimport Memory
from warren.broker.message cimport Message


cdef class Block:
    cdef uint8_t* data
    cdef uint32_t size
    cdef uint32_t at
    cdef list messages
    cdef Message template
    cdef Memory memory
    cdef Py_ssize_t held_bytes

    cdef void hold(self, Py_ssize_t size) noexcept


cdef class Pack:
    cdef Memory memory
    cdef object blocks
    cdef Block first
    cdef Block last
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t bytes
    cdef readonly uint64_t next_position
    cdef uint64_t last_position

    cdef Block room(self, Py_ssize_t size)
    cpdef append(self, Message message, uint64_t position)
    cpdef Message pop(self)
    cdef void step(self) noexcept
