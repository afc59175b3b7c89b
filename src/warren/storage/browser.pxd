from libc.stdint cimport uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport LogBrowser, MessageLog
from warren.storage.cursor cimport Cursor


cdef class QueueBrowser(LogBrowser):
    cdef MessageLog log
    cdef list segments        # those of the log
    cdef Cursor reading       # the queue's own: no message before it is unread
    cdef Cursor cursor        # ours
    cdef uint64_t since       # no message between this position and our cursor is unread,
    cdef uint64_t given_back  # if the log has given back as many messages as it had then

    cdef begin(self, uint64_t above)
