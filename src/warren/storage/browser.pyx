# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A second pointer into a queue's log, for choosing among the unread messages. It takes nothing.

Unread messages become read, and hardly ever the other way. So a browser does not look again at what it has passed,
unless it is asked for a position before that, or the queue has given a message back.
"""

from libc.stdint cimport uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport LogBrowser, MessageLog
from warren.storage.cursor cimport NOTHING, Cursor
from warren.storage.segment cimport Segment, index_beyond


cdef class QueueBrowser(LogBrowser):
    """What each attribute is for is in browser.pxd."""

    def __init__(self, MessageLog log, list segments, Cursor reading, Cursor cursor):
        super().__init__()
        self.log = log
        self.segments = segments
        self.reading = reading
        self.cursor = cursor

    cpdef uint64_t next_position(self, uint64_t above) except? 0:
        cdef Cursor cursor = self.cursor
        cdef uint64_t position
        cdef Py_ssize_t index
        if self.log.unread == 0:
            return NOTHING
        above = max(above, self.reading.above)
        self.begin(above)
        while True:
            position = cursor.position(above) if cursor.segment.unread else NOTHING
            if position != NOTHING:
                self.location = cursor.offset
                return position
            index = index_beyond(self.segments, cursor.segment.base)
            if index >= len(self.segments):
                return NOTHING
            cursor.move(self.segments[index], 0)

    cdef begin(self, uint64_t above):
        """Move the cursor to a place near this position that has all unread messages above it behind it."""
        cdef Cursor cursor = self.cursor, reading = self.reading
        cdef Segment segment = cursor.segment
        cdef bint again = above < self.since or self.given_back != self.log.given_back
        self.given_back = self.log.given_back
        if segment is None or segment.is_dropped() or again or above >= segment.last:
            segment = self.segments[max(0, index_beyond(self.segments, above + 1) - 1)]
            if segment is not cursor.segment or again:
                cursor.move(segment, 0)
        if reading.segment is segment and reading.offset > cursor.offset:
            cursor.seek(segment, reading.offset, reading.above)
        self.since = above

    cpdef Message read(self):
        assert not self.cursor.segment.is_dropped(), "its message was unread just now"
        message = self.cursor.look()
        if self.cursor.step_over_large():
            self.since = self.cursor.above
        return message
