from libc.stdint cimport uint32_t, uint64_t

from warren.broker.message cimport Message


cdef class Entry:
    cdef public Message message
    cdef public object queue
    cdef public object consumer
    cdef public uint64_t position
    cdef public uint32_t size
    cdef public uint32_t delivery_count
    cdef public uint64_t delivered_ms
    cdef public Entry before
    cdef public Entry behind
