from libc.stdint cimport uint64_t


cdef struct Due:
    uint64_t due_ms
    uint64_t position  # of the message in its queue
    uint64_t location  # where the message lies, as `location.py` says


cdef class DueHeap:
    cdef Due* items
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity  # for how many items there is memory
    cdef readonly uint64_t position  # of the item that was popped last
    cdef readonly uint64_t location  # of the item that was popped last

    cpdef int push(self, uint64_t due_ms, uint64_t position, uint64_t location) except -1
    cpdef uint64_t next_due(self) noexcept
    cpdef int pop(self) except -1
    cdef int resize(self, Py_ssize_t capacity) except -1
    cdef void rise(self, Py_ssize_t at, Due item) noexcept
    cdef void sink(self, Py_ssize_t at, Due item) noexcept
