from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.storage.format cimport Mark


cdef class Fates:
    cdef readonly uint64_t base    # the position of the segment's first record
    cdef readonly uint64_t places  # how many positions from there on have marks, even if no segment can have as many
    cdef void* table               # a number for each position
    cdef uint64_t room             # how many positions the table has room for
    cdef bint wide                 # whether each number has 32 bits, or 16

    cdef uint32_t at(self, uint64_t relative) noexcept nogil
    cdef int fold(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* bad) noexcept nogil
    cdef int raise_to(self, uint64_t first, uint64_t end, uint32_t fate) noexcept nogil
    cdef int make_room(self, uint64_t end) noexcept nogil
    cdef int widen(self) noexcept nogil
    cdef int shrink(self) except -1
    cdef bint next_run(self, uint64_t* at, uint64_t end, Mark* run) noexcept nogil
