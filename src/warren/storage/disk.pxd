from libc.stdint cimport int64_t, uint8_t

from warren.broker.message cimport Message

cdef extern from "sys/uio.h" nogil:
    ctypedef struct iovec "struct iovec":
        void* iov_base
        size_t iov_len


cdef class Buffer:
    cdef uint8_t* data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity
    # the record at the end, if its body is not copied
    cdef Message large
    cdef Py_ssize_t large_at
    cdef Py_ssize_t padding

    cdef uint8_t* room(self, Py_ssize_t size) except NULL
    cdef int attach(self, Message large, Py_ssize_t at, Py_ssize_t padding) except -1
    cdef Py_ssize_t total(self) noexcept


cdef class Operation:
    cdef readonly int kind
    cdef readonly int file
    cdef readonly object data
    cdef readonly int64_t offset
    cdef readonly bytes path
    cdef readonly bytes target
    cdef readonly object parts


cdef struct Step:
    int kind
    int file
    const uint8_t* data
    Py_ssize_t size
    uint8_t* head
    const uint8_t* body
    Py_ssize_t body_size
    Py_ssize_t padding
    int64_t offset
    const char* path
    const char* target
    iovec* parts
    Py_ssize_t part_count


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
