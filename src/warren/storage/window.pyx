# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A stretch of a segment's file in memory. Bytes in a segment's file never change, so a window stays right.

A cursor that reads on asks for large steps. A single record is read with what surrounds it: the nearer it is to the
one before, the more. So a few records that are far apart cost a page each, and many side by side cost hardly more
than reading on.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from warren.broker.message cimport Message
from warren.storage.checksum cimport crc32c, crc32c_on
from warren.storage.disk cimport Buffer
from warren.storage.format cimport (
    RECORD_BYTES_MIN, RECORD_CHECKED_FROM, RECORD_HEAD_BYTES, RecordHead, bytes_before_body, padded, record_length,
    take_message,
)
from warren.storage.segment cimport Segment

cdef extern from "unistd.h" nogil:
    Py_ssize_t pread(int file, void* data, size_t size, int64_t offset)

cdef enum:
    KEPT_BYTES_MAX = 512 * 1024  # what a large record needed is not kept for the next
    STEP_BYTES_MIN = 4 * 1024
    STEP_BYTES_MAX = 64 * 1024
    NAMES_BYTES_MAX = 512
    LARGE_BYTES_MIN = 1024 * 1024  # of a record whose body gets an object of its own at once

cdef uint64_t reads = 0, read_bytes = 0, read_ns = 0


def read_figures():
    """How often this process has read files of queues, how many bytes, and how many nanoseconds that took."""
    return reads, read_bytes, read_ns


cdef class Window:
    """What each attribute is for is in window.pxd."""

    def __init__(self, files):
        self.files = files
        self.step = STEP_BYTES_MIN

    cdef Py_ssize_t length(self, Segment segment, Py_ssize_t offset, uint64_t above) noexcept:
        """The size of the record at an offset; 0 if it is none, below 0 if more bytes are needed to tell."""
        cdef Py_ssize_t at = offset - self.at
        if segment is not self.segment or at < 0 or at >= self.chunk.size:
            return -RECORD_BYTES_MIN
        return record_length(self.chunk.data + at, self.chunk.size - at, above)

    cdef const uint8_t* record(
        self, Segment segment, Py_ssize_t offset, uint64_t above, Py_ssize_t step, object problems, Py_ssize_t* length
    ) except? NULL:
        """The sound record at an offset in the file, with a position above this one; NULL if there is none."""
        cdef Py_ssize_t known = self.length(segment, offset, above), tries = 0
        while known < 0 and tries < 2:  # for its head, and, if it is longer than a step, for the rest
            if -known >= LARGE_BYTES_MIN:
                known = self.load_large(segment, offset, -known, problems)
                break
            self.load(segment, offset, max(-known, step), problems)
            known = self.length(segment, offset, above)
            tries += 1
        length[0] = known
        return self.chunk.data + (offset - self.at) if known > 0 else NULL

    cdef Py_ssize_t load_large(self, Segment segment, Py_ssize_t offset, Py_ssize_t size, object problems) except -1:
        """Read a large record whose head was seen, with its body in an object of its own: the message gets that
        object, and nothing is copied. The padded size; 0 if the record is not sound.
        """
        cdef Py_ssize_t before
        cdef const RecordHead* head
        cdef bytes body
        cdef uint32_t crc
        cdef const uint8_t* content
        if size > segment.written - offset:
            return 0
        self.load(segment, offset, RECORD_HEAD_BYTES + NAMES_BYTES_MAX, problems)
        before = bytes_before_body(self.chunk.data, self.chunk.size)
        if before > self.chunk.size:
            self.load(segment, offset, before, problems)
        head = <const RecordHead*>self.chunk.data
        if before == 0 or self.chunk.size < before or padded(head.length) != size:
            return 0
        body = PyBytes_FromStringAndSize(NULL, head.length - before)
        if not self.read_body(segment, offset + before, body, problems):
            return 0
        content = <const uint8_t*>PyBytes_AS_STRING(body)
        with nogil:
            crc = crc32c(self.chunk.data + RECORD_CHECKED_FROM, before - RECORD_CHECKED_FROM)
            crc = crc32c_on(crc, content, head.length - before)
        if crc != head.crc:
            return 0
        self.body = body
        return size

    cdef bint read_body(self, Segment segment, Py_ssize_t offset, bytes body, object problems) except -1:
        """Fill a body from the file. Whether all of it was there."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        try:
            return read_file(
                self.files.open(segment.path + ".seg"), <uint8_t*>PyBytes_AS_STRING(body), size, offset
            ) == size
        except OSError as error:
            segment.damaged = True
            problems.unreadable(segment, error)
            return False

    cdef bytes body_at(self, const uint8_t* p):
        """The body of the record at `p` if it is the large one; None if the body is in the chunk, behind the head."""
        return self.body if self.body is not None and p == self.chunk.data else None

    cdef Message message_of(self, Segment segment, const uint8_t* p, Message like):
        """The message of the record at `p`, which is in this window or not in the file yet."""
        if self.body_at(p) is not None:
            return take_message(p, like, self.body)
        return segment.message_of(p, like)

    cdef int load(self, Segment segment, Py_ssize_t offset, Py_ssize_t size, object problems) except -1:
        """Read so many bytes of the file from an offset on, or as many as there are."""
        cdef Py_ssize_t wanted = max(0, min(size, segment.written - offset)), got = 0
        if self.chunk is None or self.is_large():
            self.chunk = Buffer()
        self.chunk.size = 0
        self.body = None
        self.segment, self.at = segment, offset
        try:
            got = read_file(self.files.open(segment.path + ".seg"), self.chunk.room(wanted), wanted, offset)
        except OSError as error:
            segment.damaged = True
            problems.unreadable(segment, error)
        self.chunk.size = got
        return 0

    cpdef Message read(self, Segment segment, Py_ssize_t offset, uint64_t position, object problems):
        """The message at an offset in the file or in memory; None if it is not there, or not sound."""
        cdef Py_ssize_t length = 0
        cdef const uint8_t* p
        if offset >= segment.end:
            return None
        if offset >= segment.written:
            p = segment.in_memory(offset, &length)
        else:
            if self.length(segment, offset, position - 1) < 0:
                self.adapt(segment, offset)
            p = self.record(segment, offset, position - 1, self.step, problems, &length)
        if p == NULL or (<const RecordHead*>p).position != position:
            return None
        cdef Message message = self.message_of(segment, p, self.like)
        self.like = message if PyBytes_GET_SIZE(message.body) <= LIKE_BYTES_MAX else None
        self.let_go_of_large()
        return message

    cdef bint is_large(self):
        """Whether it holds so much for the sake of one record that it should not be kept."""
        return self.body is not None or (self.chunk is not None and self.chunk.capacity > KEPT_BYTES_MAX)

    cdef bint let_go_of_large(self):
        """Free the memory for a large record, which was taken. Whether there was one."""
        if not self.is_large():
            return False
        self.chunk = None
        self.body = None
        self.segment = None
        return True

    cdef adapt(self, Segment segment, Py_ssize_t offset):
        """Choose how much is read with the next record."""
        if segment is self.segment and self.at <= offset < self.at + self.chunk.size + STEP_BYTES_MAX:
            self.step = min(2 * self.step, <Py_ssize_t>STEP_BYTES_MAX)
        else:
            self.step = STEP_BYTES_MIN


cdef Py_ssize_t read_file(int file, uint8_t* p, Py_ssize_t size, Py_ssize_t offset) except -1:
    """How many bytes there were. A little is read without letting other threads go on: to come back would take
    longer.
    """
    global reads, read_bytes, read_ns
    cdef Py_ssize_t at = 0, got
    cdef int64_t began = now_ns()
    while at < size:
        if size <= STEP_BYTES_MAX:
            got = pread(file, p + at, size - at, offset + at)
        else:
            with nogil:
                got = pread(file, p + at, size - at, offset + at)
        if got < 0:
            raise OSError(c_errno, "cannot read")
        if got == 0:
            break
        at += got
    reads += 1
    read_bytes += at
    read_ns += now_ns() - began
    return at


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec
