from libc.stdint cimport uint32_t, uint64_t

from warren.broker.entry cimport Entry
from warren.broker.entry_list cimport EntryList
from warren.broker.message cimport Message


cdef class LogBrowser:
    cdef public uint64_t location

    cpdef uint64_t next_position(self, uint64_t above) except? 0
    cpdef Message read(self)


cdef class MessageLog:
    cdef public object safety
    cdef public Py_ssize_t unread
    cdef public Py_ssize_t unread_bytes
    cdef public uint64_t given_back
    cdef public bint holds_back

    cpdef uint64_t append(self, Message message, uint64_t position, bint taken) except? 0
    cpdef uint64_t peek(self) except? 0
    cpdef Message take_out(self, uint64_t position, uint64_t location)
    cpdef uint32_t deliveries_of(self, uint64_t position) except? 0
    cpdef bint has_returned(self, uint64_t position) except -1
    cpdef read_on(self, object queue, EntryList ready, Py_ssize_t most, Py_ssize_t most_bytes, uint64_t before)
    cpdef give_back(self, Entry entry)
    cpdef rest(self)
    cpdef delivered(self, uint64_t position, uint32_t deliveries)
    cpdef acked(self, uint64_t position)


cdef class StreamReader:
    cpdef Py_ssize_t ready(self) except? -3
    cpdef Message take(self)
    cpdef uint64_t next_position(self)


cdef class StreamLog:
    cdef public object safety
    cdef public dict offsets
    cdef public bint holds_back
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size_bytes

    cpdef append(self, Message message, uint64_t position, uint64_t time_ms)
