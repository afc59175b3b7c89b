cimport cython
from libc.stdint cimport uint64_t

cdef uint64_t STEP_BACK_MS_MAX

cpdef uint64_t follow(uint64_t time_ms, uint64_t now_ms) except? 0


@cython.final
cdef class Clock:
    cdef object read
    cdef readonly uint64_t time_ms

    cpdef uint64_t refresh(self) except? 0
