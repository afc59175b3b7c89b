from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef class Output:
    cdef PyObject* block                # a bytes object that frames are written into; NULL if there are none
    cdef uint8_t* data                  # the memory of the block
    cdef Py_ssize_t size                # how much of the block is written
    cdef Py_ssize_t capacity            # how much fits into the block
    cdef Py_ssize_t hint                # how large the next block is at first: a bit more than the last one
    cdef list chunks                    # full blocks and large bodies, which go out before the block
    cdef Py_ssize_t chunked_bytes       # their size
    cdef list dirty                     # all outputs of the node that have something to send
    cdef bint marked                    # whether this output is among them
    cdef Py_ssize_t turn_bytes_max      # beyond this, consumers get nothing more in this turn
    cdef public uint32_t frame_max      # as negotiated
    cdef public object owner            # the connection, which flushes the output
    cdef public bint congested          # consumers get nothing: the socket is full, or their rate is used up
    cdef public bint starved            # a consumer could have got a message, but there was no room
    cdef public bint closed             # the connection has ended: nothing is sent any more
    cdef readonly uint64_t sent_bytes   # that were taken so far
    cdef readonly uint64_t writes       # in so many pieces

    cdef uint8_t* room(self, Py_ssize_t size) except NULL
    cdef int mark(self) except -1
    cdef int cut(self) except -1
    cpdef bint has_room(self)
    cpdef int method(self, uint16_t channel, bytes payload) except -1
    cpdef int heartbeat(self) except -1
    cpdef int confirm(self, uint16_t channel, uint64_t delivery_tag, bint multiple) except -1
    cpdef int deliver(self, uint16_t channel, bytes prefix, uint64_t delivery_tag, bint redelivered,
                      bytes exchange, bytes routing_key, bytes properties, bytes body) except -1
    cpdef int content(self, uint16_t channel, bytes properties, bytes body) except -1
    cpdef list take(self)
