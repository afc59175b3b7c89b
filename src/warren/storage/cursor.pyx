# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where a queue is in reading its log: one segment at a time, in chunks, past all that is done with.

What is read from a file is checked. A bad record is reported, set aside and skipped; the next one is found by
its checksum.
"""

from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.storage.format import HEADER_BYTES

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.format cimport POSITIONS_MAX, RECORD_BYTES_MIN, RecordHead, find_record, padded, record_length, take_message
from warren.storage.segment cimport Segment

cdef extern from "unistd.h" nogil:
    Py_ssize_t pread(int file, void* data, size_t size, int64_t offset)

cdef enum:
    CHUNK_BYTES = 256 * 1024

cdef uint64_t NOTHING = 0xFFFFFFFFFFFFFFFF
cdef uint32_t ACKED = 0xFFFFFFFF


cdef class Cursor:
    """`above` is the position of the record before; `deliveries` and `taken_bytes` are of the one last taken."""

    def __init__(self, files, problems):
        self.files = files
        self.problems = problems

    cpdef move(self, Segment segment, Py_ssize_t offset):
        self.segment = segment
        self.offset = offset
        self.above = segment.base - 1 if segment is not None else 0
        self.chunk = None

    cpdef skip_to_end(self, Segment segment):
        """All that is there has been taken."""
        if self.segment is not segment:
            self.segment = segment
            self.chunk = None
        self.offset = segment.end
        self.above = segment.last

    cpdef uint64_t position(self) except? 0:
        """Of the next record in this segment that is not done with."""
        cdef Py_ssize_t length = 0
        cdef const uint8_t* p
        cdef uint64_t position
        while True:
            p = self.record(&length)
            if p == NULL:
                return NOTHING
            position = (<const RecordHead*>p).position
            self.deliveries = self.segment.fate(position)
            if self.deliveries != ACKED:
                return position
            self.above = position
            self.offset += length

    cpdef Message take(self):
        """The message whose position was just asked for."""
        cdef Py_ssize_t length = 0
        cdef const uint8_t* p = self.record(&length)
        self.above = (<const RecordHead*>p).position
        self.offset += length
        self.taken_bytes = length
        self.like = take_message(p, self.like)
        return self.like

    cdef const uint8_t* record(self, Py_ssize_t* length) except? NULL:
        """The sound record here, or behind bad ones; NULL at the end of the segment."""
        cdef const uint8_t* p
        cdef Py_ssize_t left = 0
        if self.offset == 0:
            self.offset = HEADER_BYTES
        while self.offset < self.segment.end:
            if self.offset >= self.segment.written:
                p = self.segment.in_memory(self.offset, &left)
                length[0] = padded((<const RecordHead*>p).length)
                return p
            p = self.record_in_file(length)
            if p != NULL:
                return p
        return NULL

    cdef const uint8_t* record_in_file(self, Py_ssize_t* length) except? NULL:
        """NULL if there is none at this offset; then the offset has moved on."""
        cdef Py_ssize_t known = self.known_length(), tries = 0
        while known < 0 and tries < 2:  # for its head, and, if it is a large one, for the rest
            self.load(-known)
            known = self.known_length()
            tries += 1
        if known <= 0:
            self.find_next()
            return NULL
        length[0] = known
        return self.chunk.data + (self.offset - self.chunk_at)

    cdef Py_ssize_t known_length(self) noexcept:
        """Of the record here as far as the chunk shows; 0 if it is none, below 0 if more is needed."""
        cdef Py_ssize_t at = self.offset - self.chunk_at
        if self.chunk is None or at < 0 or at >= self.chunk.size:
            return -RECORD_BYTES_MIN
        return record_length(self.chunk.data + at, self.chunk.size - at, self.above)

    cdef load(self, Py_ssize_t size):
        """Have at least so many of the file's next bytes in the chunk, if there are."""
        cdef Py_ssize_t wanted = min(max(size, <Py_ssize_t>CHUNK_BYTES), self.segment.written - self.offset)
        cdef Py_ssize_t at = 0, got
        cdef uint8_t* p
        cdef int file
        self.chunk = Buffer()
        self.chunk_at = self.offset
        try:
            file = self.files.open(self.segment.path + ".seg")
            p = self.chunk.room(wanted)
            while at < wanted:
                with nogil:
                    got = pread(file, p + at, wanted - at, self.offset + at)
                if got < 0:
                    raise OSError(c_errno, "cannot read", self.segment.path + ".seg")
                if got == 0:
                    break
                at += got
        except OSError as error:
            self.segment.damaged = True
            self.problems.unreadable(self.segment, error)
        self.chunk.size = at

    cdef find_next(self):
        """Skip what is no record, up to the next one or to the end of the file."""
        cdef Py_ssize_t found = -1, at
        self.load(self.segment.written - self.offset)
        if self.chunk.size:
            found = find_record(
                self.chunk.data, 8, self.chunk.size, self.above, self.segment.base + POSITIONS_MAX
            )
        at = self.chunk.size if found < 0 else found
        self.problems.bad_record(self.segment, self.offset, (<char*>self.chunk.data)[:at])
        self.offset = self.segment.written if found < 0 else self.offset + found
