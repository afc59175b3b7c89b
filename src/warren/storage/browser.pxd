from libc.stdint cimport uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport LogBrowser, MessageLog
from warren.storage.cursor cimport Cursor


cdef class QueueBrowser(LogBrowser):
    cdef MessageLog log
    cdef list segments
    cdef Cursor reading
    cdef Cursor cursor
    cdef uint64_t since
    cdef uint64_t given_back

    cdef begin(self, uint64_t above)
