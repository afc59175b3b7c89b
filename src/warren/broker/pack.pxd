from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.memory cimport Memory
from warren.broker.message cimport Message


cdef class Block:
    cdef uint8_t* data
    cdef uint32_t number
    cdef uint64_t base
    cdef uint32_t size
    cdef list messages
    cdef Message template
    cdef Memory memory
    cdef Py_ssize_t held_bytes
    cdef Py_ssize_t capacity

    cdef void hold(self, Py_ssize_t size) noexcept
    cdef void put(self, uint32_t number, uint32_t size) noexcept
    cdef void note(self, uint32_t kind, uint64_t value) noexcept


cdef class Place:
    cdef Block block
    cdef uint32_t at
    cdef uint64_t position
    cdef uint64_t time_ms
    cdef uint32_t number
    cdef uint32_t size

    cdef void begin(self, Block block) noexcept
    cdef bint is_at_end(self) noexcept
    cdef void settle(self) noexcept
    cdef void step(self) noexcept
    cdef bint is_taken_out(self) noexcept
    cdef void take_out(self) noexcept
    cdef Message read(self)
    cdef int let_go(self) except -1


cdef class Pack:
    cdef Memory memory
    cdef object blocks
    cdef uint32_t blocks_made
    cdef Block last
    cdef Place front
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t bytes
    cdef readonly uint64_t next_position
    cdef uint64_t last_position
    cdef uint64_t last_time_ms

    cdef Block room(self, Py_ssize_t size, uint64_t position, uint64_t time_ms)
    cpdef uint64_t append(self, Message message, uint64_t position) except? 0
    cpdef Message pop(self)
    cdef int move_on(self) except -1
    cdef int gone(self, Py_ssize_t size) except -1
    cpdef Message take_out(self, uint64_t location, uint64_t time_ms)


cdef class PackBrowser:
    cdef Pack pack
    cdef Place place

    cpdef uint64_t next_position(self, uint64_t above) except? 0
    cdef bint next_block(self) except -1
    cpdef Message read(self)
