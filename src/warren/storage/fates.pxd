from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.storage.format cimport Mark


cdef class Fates:
    cdef readonly uint64_t base
    cdef readonly uint64_t places
    cdef void* table
    cdef uint64_t room      # of positions
    cdef bint wide          # whether each has 32 bits of the table, or 16

    cdef uint32_t at(self, uint64_t relative) noexcept nogil
    cdef int fold(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* bad) noexcept nogil
    cdef int raise_to(self, uint64_t first, uint64_t end, uint32_t fate) noexcept nogil
    cdef int make_room(self, uint64_t end) noexcept nogil
    cdef int widen(self) noexcept nogil
    cdef int shrink(self) except -1
    cdef bint next_run(self, uint64_t* at, uint64_t end, Mark* run) noexcept nogil
