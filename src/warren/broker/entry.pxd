from libc.stdint cimport uint32_t, uint64_t

from warren.broker.message cimport Message


cdef class Entry:
    cdef public Message message
    cdef public object queue  # the queue that the entry belongs to
    cdef public object consumer  # the consumer that has the message, if any
    cdef public uint64_t position  # in the queue, from 1 on; 0 if the client only browses
    cdef public uint32_t size  # of the body, in bytes
    cdef public uint32_t delivery_count  # how often the message was delivered before and came back
    cdef public uint32_t location  # of its record in its lane's log; 0 if it has none there
    cdef public uint32_t expiry_noted  # at which weeding of `Expiry` the heap had its deadline; 0: it has not
    cdef public bint returned  # whether it was delivered since the start, and came back
    cdef public uint64_t delivered_ms  # when it was last delivered to be acked; 0 if never
    cdef public Entry before  # the neighbour nearer to the head, in the list that the entry is in
    cdef public Entry behind  # the neighbour nearer to the tail
