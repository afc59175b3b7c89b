from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef class Output:
    cdef PyObject* block
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t hint
    cdef list chunks
    cdef Py_ssize_t chunked_bytes
    cdef list dirty
    cdef bint marked
    cdef Py_ssize_t turn_bytes_max
    cdef public uint32_t frame_max
    cdef public object owner
    cdef public bint congested
    cdef public bint starved
    cdef public bint closed

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
