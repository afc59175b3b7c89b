# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A place in a log from which records are read, one segment at a time. Records that are done with or were taken out
are skipped.

Each record that is read from a file is checked. A bad one is reported, set aside and skipped; the next one is found
by its checksum.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.format cimport (
    HEADER_BYTES, MARK_ACKED, POSITIONS_MAX, RECORD_ALIGNMENT, RecordHead, find_record, padded, record_bytes,
)
from warren.storage.segment cimport Segment
from warren.storage.window cimport LIKE_BYTES_MAX, Window

cdef enum:
    CHUNK_BYTES = 256 * 1024
    FEW_BYTES = 4 * 1024
    NOWHERE = -1



cdef class Cursor:
    """What each attribute is for is in cursor.pxd."""

    def __init__(self, files, problems):
        self.files = files
        self.problems = problems
        self.sound_at = NOWHERE
        self.step = CHUNK_BYTES

    cpdef move(self, Segment segment, Py_ssize_t offset):
        self.seek(segment, offset, segment.base - 1 if segment is not None else 0)

    cpdef seek(self, Segment segment, Py_ssize_t offset, uint64_t above):
        if segment is None:
            self.window = None
        self.segment = segment
        self.offset = offset
        self.above = above
        self.sound_at = NOWHERE

    cpdef skip_to_end(self, Segment segment):
        """Go behind the last record of a segment: all of them are read."""
        self.window = None
        self.seek(segment, segment.end, segment.last)

    cpdef set_step(self, Py_ssize_t size):
        """About so many bytes will be read: ask the file for no more at a time."""
        self.step = max(<Py_ssize_t>FEW_BYTES, min(size, <Py_ssize_t>CHUNK_BYTES))

    cpdef rest(self):
        """Nobody is about to read on: hold no memory."""
        self.window = None
        self.like = None
        self.sound_at = NOWHERE
        self.step = FEW_BYTES

    cdef let_go_of_large(self):
        """Free what a large record needed, once it is taken."""
        if self.window is not None and self.window.let_go_of_large():
            self.sound_at = NOWHERE
        if self.like is not None and PyBytes_GET_SIZE(self.like.body) > LIKE_BYTES_MAX:
            self.like = None

    cpdef bint step_over_large(self):
        """Go on behind the record that was just looked at, if it is large. Whether it was."""
        cdef Py_ssize_t length = 0
        cdef const uint8_t* p
        if self.window is None or not self.window.is_large():
            return False
        p = self.record(&length)
        self.above = (<const RecordHead*>p).position
        self.offset += length
        self.let_go_of_large()
        return True

    cpdef uint64_t position(self, uint64_t beyond=0) except? 0:
        """The position of the next unread record in this segment that is beyond some position, or NOTHING."""
        cdef Py_ssize_t length = 0
        cdef const uint8_t* p
        cdef uint64_t position
        while True:
            p = self.record(&length)
            if p == NULL:
                return NOTHING
            position = (<const RecordHead*>p).position
            if position > beyond and not self.segment.is_gone(position):
                self.deliveries = self.segment.fate(position)
                if self.deliveries != MARK_ACKED:
                    return position
            self.above = position
            self.offset += length

    cpdef Message look(self):
        """The message whose position was just asked for."""
        cdef Py_ssize_t length = 0
        cdef Message message = self.message_of(self.record(&length))
        self.like = message if PyBytes_GET_SIZE(message.body) <= LIKE_BYTES_MAX else None
        return message

    cpdef Message take(self):
        """The message whose position was just asked for; the cursor goes on behind it."""
        cdef Py_ssize_t length = 0
        cdef const uint8_t* p = self.record(&length)
        cdef Message message
        self.above = (<const RecordHead*>p).position
        self.offset += length
        self.like = message = self.message_of(p)
        if PyBytes_GET_SIZE(message.body) > LIKE_BYTES_MAX:
            self.let_go_of_large()
        return message

    cdef Message message_of(self, const uint8_t* p):
        if self.window is None:
            return self.segment.message_of(p, self.like)
        return self.window.message_of(self.segment, p, self.like)

    cdef const uint8_t* record(self, Py_ssize_t* length) except? NULL:
        """The sound record here, or behind bad ones; NULL at the end of the segment."""
        cdef const uint8_t* p
        cdef Py_ssize_t left = 0
        if self.offset == 0:
            self.offset = HEADER_BYTES
        while self.offset < self.segment.end:
            if self.offset >= self.segment.written:
                self.window = None
                p = self.segment.in_memory(self.offset, &left)
                length[0] = padded((<const RecordHead*>p).length)
                return p
            p = self.record_in_file(length)
            if p != NULL:
                return p
        return NULL

    cdef const uint8_t* record_in_file(self, Py_ssize_t* length) except? NULL:
        """The record at this offset; NULL if there is none. Then the offset has moved on."""
        cdef const uint8_t* p
        if self.window is None:
            self.window = Window(self.files)
        elif self.offset == self.sound_at:
            length[0] = self.sound_length
            return self.window.chunk.data + (self.offset - self.window.at)
        p = self.window.record(self.segment, self.offset, self.above, self.step, self.problems, length)
        if p == NULL:
            self.find_next()
        else:
            self.sound_at, self.sound_length = self.offset, length[0]
        return p

    cpdef find_next(self):
        """Skip what is no record, up to the next one or to the end of the file."""
        cdef Py_ssize_t found = -1, at
        if self.window is None:
            self.window = Window(self.files)
        self.window.load(self.segment, self.offset, self.segment.written - self.offset, self.problems)
        chunk = self.window.chunk
        if chunk.size:
            found = find_record(chunk.data, RECORD_ALIGNMENT, chunk.size, self.above, self.segment.base + POSITIONS_MAX)
        at = chunk.size if found < 0 else found
        self.problems.bad_record(self.segment, self.offset, (<char*>chunk.data)[:at])
        self.offset = self.segment.written if found < 0 else self.offset + found
