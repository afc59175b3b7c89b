from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.memory cimport Memory
from warren.broker.message cimport Message


cdef class Block:
    cdef uint8_t* data  # records and notes
    cdef uint32_t number  # blocks of a pack are counted from 0
    cdef uint64_t base  # the position of the first record
    cdef uint32_t size  # bytes of data that are in use
    cdef list messages  # to which the numbers of records refer
    cdef Message template  # the last of `messages`, if small bodies may refer to it
    cdef Memory memory
    cdef Py_ssize_t held_bytes  # what this block counts for in the memory budget
    cdef Py_ssize_t capacity  # bytes allocated for data

    cdef void hold(self, Py_ssize_t size) noexcept
    cdef void put(self, uint32_t number, uint32_t size) noexcept
    cdef void note(self, uint32_t kind, uint64_t value) noexcept


cdef class Place:
    cdef Block block  # None for nowhere
    cdef uint32_t at  # where the record begins in the block
    cdef uint64_t position  # of the message
    cdef uint64_t time_ms  # when the message arrived
    cdef uint32_t number  # the head of the record
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
    cdef object blocks  # a deque, with consecutive numbers
    cdef uint32_t blocks_made  # the number of the next block
    cdef Block last  # the block that is written to
    cdef Place front  # the first message
    cdef readonly Py_ssize_t count  # of messages
    cdef readonly Py_ssize_t bytes  # of their bodies
    cdef readonly uint64_t next_position  # of the first message
    cdef uint64_t last_position  # of the last message
    cdef uint64_t last_time_ms  # when the last message arrived

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
