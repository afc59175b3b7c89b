from libc.stdint cimport int64_t, uint8_t

from warren.broker.message cimport Message

cdef extern from "sys/uio.h" nogil:
    ctypedef struct iovec "struct iovec":
        void* iov_base
        size_t iov_len


cdef class Buffer:
    cdef uint8_t* data
    cdef readonly Py_ssize_t size  # bytes of `data` that are used
    cdef Py_ssize_t capacity  # bytes that `data` has room for
    cdef Message large  # the message of the last record, if that is too large to be copied
    cdef Py_ssize_t large_at  # where that record's head begins in `data`
    cdef Py_ssize_t padding  # zeros that follow its body

    cdef uint8_t* room(self, Py_ssize_t size) except NULL
    cdef int attach(self, Message large, Py_ssize_t at, Py_ssize_t padding) except -1
    cdef Py_ssize_t total(self) noexcept


cdef class Operation:
    cdef readonly int kind  # WRITE and so on
    cdef readonly int file  # the descriptor of the open file
    cdef readonly object data  # to be written: bytes or a Buffer
    cdef readonly int64_t offset  # in the file
    cdef readonly bytes path  # to be renamed
    cdef readonly bytes target  # its new name
    cdef readonly object parts  # Buffers that are written behind `data`


cdef struct Step:
    # an Operation, as the disk's thread reads it: without Python objects
    int kind
    int file
    const uint8_t* data
    Py_ssize_t size  # of `data`
    uint8_t* head  # of the large record at the end of `data`, if there is one
    const uint8_t* body  # of that record
    Py_ssize_t body_size
    Py_ssize_t padding  # zeros that follow `body`
    int64_t offset
    const char* path
    const char* target
    iovec* parts  # all that WRITE_SAFELY writes
    Py_ssize_t part_count


cdef class Disk:
    cdef Step* steps  # what was submitted
    cdef Py_ssize_t count  # of `steps`
    cdef int error  # the errno of the step that failed, or 0
    cdef bint stopping  # the thread is to end
    cdef int wake  # an eventfd: the thread has something to do
    cdef readonly int done  # an eventfd: the thread has done it
    cdef bint is_over  # the same, to be asked without a system call
    cdef object thread
    cdef list operations  # keeps what `steps` point to alive

    cdef void work(self) noexcept nogil
