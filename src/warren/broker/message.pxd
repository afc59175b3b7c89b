cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef long PERSISTENT_WORK
cdef int BODY_WORK_SHIFT
cdef int WIDE_SHIFT


@cython.final
cdef class Message:
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef readonly bytes properties
    cdef readonly bytes body
    cdef readonly uint64_t time_ms
    cdef readonly int64_t expiration_ms
    cdef readonly uint8_t priority
    cdef readonly bint persistent
    cdef readonly bint died
    cdef readonly bint scheduled


@cython.locals(message=Message)
cpdef Message publish_message(
    bytes exchange,
    bytes routing_key,
    bytes properties,
    bytes body,
    bint persistent,
    uint64_t time_ms,
    int64_t expiration_ms,
    uint8_t priority,
)
@cython.locals(message=Message)
cpdef Message message_like(Message like, bytes body, uint64_t time_ms)
@cython.locals(work=long)
cpdef long enqueue_work(Message message, Py_ssize_t queues) noexcept
