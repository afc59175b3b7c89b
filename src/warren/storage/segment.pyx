# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One segment of a log: what is known of it, and the bytes that are not in its files yet.

    .seg    |……… written ………|… flying …|… gathered …|
            0                 written               end

`gathered` holds the records since the last round began, `flying` those that the disk is writing. They are kept until
a sync has covered them: after a sync that failed, nobody knows what is on the disk.

Which states a segment goes through, and who changes them, is in segment_life.py. What each attribute is for is in
segment.pxd.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pathlib import Path

from warren.storage.files import remove_segment
from warren.storage.format import ACKS_MAGIC, encode_header, encode_segment_header, scan
from warren.storage.index import write_index
from warren.storage.segment_life import TRANSITIONS, Life, OnDisk

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.fates cimport Fates
from warren.storage.format cimport (
    DELIVERIES_MAX, HEADER_BYTES, MARK_ACKED, MARK_BYTES, POSITIONS_MAX, RECORD_HEAD_BYTES, IndexEntry, Mark, put_head,
    put_record, record_bytes, seal_mark, take_message,
)

cdef enum:
    MARKS_BYTES_MIN = 1024 * 1024   # of marks that wait to be written, before they are looked through
    LARGE_BYTES_MIN = 1024 * 1024   # of a body that is not copied

# members of Enums, to be compared by identity: that is as fast as a C enum, and they are listed once
cdef object OPEN = Life.OPEN, DROPPED = Life.DROPPED, REMOVED = Life.REMOVED
cdef object ABSENT = OnDisk.ABSENT, NAMED = OnDisk.NAMED


cdef inline bint is_large_at(Buffer buffer, const uint8_t* p) noexcept:
    """Whether the large record of a buffer, if there is one, begins here."""
    return buffer is not None and buffer.large is not None and p == buffer.data + buffer.large_at


cdef bytes bytes_from(Buffer buffer, Py_ssize_t at):
    if buffer.large is not None:
        return buffer.tobytes()[at:]
    return (<char*>buffer.data)[at:buffer.size]


cdef bint has_bit(bytearray bits, uint64_t number) noexcept:
    if bits is None or number >> 3 >= <uint64_t>PyByteArray_GET_SIZE(bits):
        return False
    return ((<uint8_t*>PyByteArray_AS_STRING(bits))[number >> 3] >> (number & 7)) & 1


cdef bytearray with_bit(bytearray bits, uint64_t number, uint64_t last):
    """These bits with one more. If there are none yet, room is made for those up to `last`."""
    cdef Py_ssize_t at = <Py_ssize_t>(number >> 3)
    if bits is None:
        bits = bytearray((last >> 3) + 1)
    if at >= PyByteArray_GET_SIZE(bits):
        bits.extend(bytes(at + 1))
    (<uint8_t*>PyByteArray_AS_STRING(bits))[at] |= 1 << (number & 7)
    return bits


cdef class Segment:
    """A segment that has just begun: nothing of it is on disk."""

    def __init__(self, str path, uint64_t base, object directory=None, *, bint volatile=False, uint64_t epoch=0):
        self.path = path
        self.epoch = epoch
        self.directory = directory
        self.life = OPEN
        self.on_disk = ABSENT
        self.base = base
        self.last = base - 1
        self.volatile = volatile
        self.end = 0
        self.entries = self.dues = b""
        self.marks_bytes_max = MARKS_BYTES_MIN

    # --- its life ---

    cpdef enter(self, object state):
        """Go over to another state: nothing else changes it."""
        before = self.life if isinstance(state, Life) else self.on_disk
        if state not in TRANSITIONS[before]:
            raise AssertionError(f"a segment cannot go from {before} to {state}: {self.path}")
        if isinstance(state, Life):
            self.life = state
        else:
            self.on_disk = state

    cpdef bint is_closed(self) noexcept:
        """Whether it gets no more records."""
        return self.life is not OPEN

    cpdef bint is_dropped(self) noexcept:
        """Whether nothing in it is wanted any more."""
        return self.life is DROPPED or self.life is REMOVED

    cpdef bint is_removed(self) noexcept:
        """Whether its files are deleted, or about to be."""
        return self.life is REMOVED

    cpdef bint is_made(self) noexcept:
        """Whether there may be files of it."""
        return self.on_disk is not ABSENT

    cpdef bint is_named(self) noexcept:
        """Whether a power cut leaves the name of its file."""
        return self.on_disk is NAMED

    cpdef bint can_be_journaled(self) noexcept:
        """Whether the journal may make a round of it safe."""
        return self.on_disk is NAMED and not self.unjournaled

    # --- appending ---

    cpdef end_here(self):
        """The next record goes to another segment."""
        self.ended = True

    cpdef bint is_full(self, Py_ssize_t segment_bytes, uint64_t position):
        """Whether a record with this position goes to another segment."""
        return self.ended or self.end >= segment_bytes or position - self.base >= POSITIONS_MAX

    cdef Py_ssize_t append(self, Message message, uint64_t position, uint64_t time_ms) except -1:
        """Add a record to `gathered`, which must be there. How many bytes it takes."""
        cdef Py_ssize_t size = record_bytes(message)
        if self.end == 0:
            self.begin()
        if PyBytes_GET_SIZE(message.body) < LARGE_BYTES_MIN:
            put_record(self.gathered.room(size), size, position, time_ms, message)
        else:
            self.put_large(size, position, time_ms, message)
        self.end += size
        self.last = position
        self.count += 1
        self.alive += 1
        return size

    def append_raw(self, const uint8_t[::1] data, uint64_t last, Py_ssize_t count):
        """Add records to `gathered`, which must be there, as another copy of this segment has them: with the header, if
        they begin it. `last` is the position of the last one.
        """
        cdef Py_ssize_t size = data.shape[0]
        memcpy(self.gathered.room(size), &data[0], size)
        self.end += size
        self.last = last
        self.count += count

    def unwritten_from(self, Py_ssize_t offset):
        """The bytes from an offset on, which is none below `written`."""
        cdef Py_ssize_t at = offset - self.written
        cdef bytes data = b""
        assert at >= 0, "what is written is in the file"
        if self.flying is not None:
            if at < self.flying.total():
                data = bytes_from(self.flying, at)
            at = max(at - self.flying.total(), <Py_ssize_t>0)
        if self.gathered is not None and at < self.gathered.total():
            return data + bytes_from(self.gathered, at) if data else bytes_from(self.gathered, at)
        return data

    cdef int put_large(self, Py_ssize_t size, uint64_t position, uint64_t time_ms, Message message) except -1:
        """Add a record without copying its body, which would take long. It is the last one of this segment."""
        cdef Py_ssize_t body = PyBytes_GET_SIZE(message.body), at = self.gathered.size
        cdef Py_ssize_t before = (
            RECORD_HEAD_BYTES + PyBytes_GET_SIZE(message.exchange) + PyBytes_GET_SIZE(message.routing_key)
            + PyBytes_GET_SIZE(message.properties)
        )
        put_head(self.gathered.room(before), position, time_ms, message)
        self.gathered.attach(message, at, size - before - body)
        self.ended = True
        return 0

    def begin(self):
        """Put the header before the first record."""
        cdef bytes header = encode_segment_header(self.base, self.epoch)
        memcpy(self.gathered.room(HEADER_BYTES), <const char*>header, HEADER_BYTES)
        self.end = HEADER_BYTES

    cdef const uint8_t* in_memory(self, Py_ssize_t offset, Py_ssize_t* left):
        """The record at an offset beyond what is in the file; `left` becomes the number of bytes from there on."""
        cdef Py_ssize_t at = offset - self.written
        if self.flying is not None:
            if at < self.flying.total():
                left[0] = self.flying.total() - at
                return self.flying.data + at
            at -= self.flying.total()
        left[0] = self.gathered.total() - at
        return self.gathered.data + at

    cdef Message message_of(self, const uint8_t* p, Message like):
        """The message of a record in the file or in memory. That of a large record in memory still exists."""
        if is_large_at(self.gathered, p):
            return self.gathered.large
        if is_large_at(self.flying, p):
            return self.flying.large
        return take_message(p, like)

    def write_index(self):
        """Write the file that says where each record is."""
        write_index(self.path, self.base, scan(Path(self.path + ".seg").read_bytes(), self.base))

    def remove_files(self):
        """Delete its files, unless another segment has the same path by now."""
        if not self.superseded:
            remove_segment(self.path)

    # --- taken out ---

    cdef int take_out(self, uint64_t position) except -1:
        """An unread record is to be skipped when its turn comes."""
        self.gone = with_bit(self.gone, position - self.base, self.last - self.base)
        return 0

    cpdef int take_out_all(self, uint64_t first, uint64_t last) except -1:
        """No record between two positions, which count as well, is unread."""
        cdef uint64_t at = first - self.base, end = last - self.base
        cdef uint8_t* bits
        if first > last:
            return 0
        self.gone = with_bit(self.gone, end, self.last - self.base)
        bits = <uint8_t*>PyByteArray_AS_STRING(self.gone)
        while at < end:
            if at & 7 == 0 and at + 8 <= end:
                bits[at >> 3] = 0xFF
                at += 8
            else:
                bits[at >> 3] |= 1 << (at & 7)
                at += 1
        return 0

    cpdef int give_back(self, uint64_t position, uint32_t deliveries, bint returned) except -1:
        """A record that was read is unread again, and has been delivered so many times."""
        cdef uint64_t relative = position - self.base
        if self.is_gone(position):
            (<uint8_t*>PyByteArray_AS_STRING(self.gone))[relative >> 3] &= ~(1 << (relative & 7))
        if returned:
            self.returned = with_bit(self.returned, relative, self.last - self.base)
        if deliveries != self.fate(position):
            if self.fates is None:
                self.fates = Fates(self.base)
            if self.fates.raise_to(relative, relative + 1, min(deliveries, DELIVERIES_MAX)):
                raise MemoryError
        return 0

    cdef bint is_gone(self, uint64_t position) noexcept:
        return has_bit(self.gone, position - self.base)

    cpdef bint has_returned(self, uint64_t position) noexcept:
        """Whether it had been delivered since the start when it was given back."""
        return has_bit(self.returned, position - self.base)

    cdef bint waits(self, uint64_t position) noexcept:
        """Whether a record behind the queue's cursor is unread."""
        return self.unread > 0 and not self.is_gone(position) and self.fate(position) != MARK_ACKED

    def forget_gone(self):
        """No record here is unread, nor will be: what was taken out need not be remembered."""
        self.gone = None

    cpdef int note_rest_done(self, uint64_t first) except -1:
        """All records from this position on are done with, except those that were taken out."""
        cdef uint64_t position
        if self.gone is None:
            return self.note_done(first, <uint32_t>(self.last - first + 1))
        for position in range(first, self.last + 1):
            if not self.is_gone(position):
                self.note_done(position, 1)
        return 0

    # --- marks ---

    cpdef int note_delivered(self, uint64_t position, uint32_t deliveries) except -1:
        return self.mark(&self.out, position, 1, min(deliveries, DELIVERIES_MAX))

    cpdef int note_done(self, uint64_t position, uint32_t count) except -1:
        """This many positions from this one on are done with."""
        return self.mark(&self.done, position, count, MARK_ACKED)

    cdef int mark(self, Mark* run, uint64_t position, uint32_t count, uint32_t deliveries) except -1:
        cdef uint32_t relative = <uint32_t>(position - self.base)
        if run.count and run.deliveries == deliveries and relative == run.first + run.count:
            run.count += count
            return 0
        self.push(run)
        run.first, run.count, run.deliveries = relative, count, deliveries
        return 0

    cdef int push(self, Mark* run) except -1:
        if run.count == 0:
            return 0
        self.begin_marks()
        seal_mark(run, self.base)
        memcpy(self.marks.room(MARK_BYTES), run, MARK_BYTES)
        run.count = 0
        if self.marks.size > self.marks_bytes_max:
            self.fold_marks()
        return 0

    cdef int begin_marks(self) except -1:
        """Have a buffer for marks, with the header of the ack file if they are the first ones."""
        cdef bytes header
        if self.marks is None:
            self.marks = Buffer()
        if self.marks_written == 0 and self.marks.size == 0:
            header = encode_header(ACKS_MAGIC, self.base)
            memcpy(self.marks.room(HEADER_BYTES), <const char*>header, HEADER_BYTES)
        return 0

    def add_marks(self, const uint8_t[::1] data):
        """Add marks as the ack file of another copy of this segment has them."""
        cdef Py_ssize_t size = data.shape[0]
        if size == 0:
            return
        self.begin_marks()
        memcpy(self.marks.room(size), &data[0], size)
        if self.marks.size > self.marks_bytes_max:
            self.fold_marks()

    def forget_marks(self):
        """The marks that are not in the ack file yet are not wanted any more."""
        if self.marks is not None:
            self.marks.size = 0
        self.out.count = self.done.count = 0

    cdef int fold_marks(self) except -1:
        """Replace the waiting marks by as few as say the same: if the disk fails, they may wait for long."""
        cdef Py_ssize_t start = HEADER_BYTES if self.marks_written == 0 else 0, bad = 0
        cdef Fates fates = Fates(self.base)
        cdef bytes few
        if fates.fold(self.marks.data + start, self.marks.size - start, &bad):
            raise MemoryError
        few = fates.encode()
        self.marks.size = start
        memcpy(self.marks.room(len(few)), <const char*>few, len(few))
        self.marks_bytes_max = max(<Py_ssize_t>MARKS_BYTES_MIN, 4 * self.marks.size)
        return 0

    def marks_to_write(self):
        """All marks that are not in the ack file yet."""
        self.push(&self.out)
        self.push(&self.done)
        return self.marks.tobytes() if self.marks is not None else b""

    def marks_are_written(self):
        if self.marks is None:
            return
        self.marks_written += self.marks.size
        self.marks_bytes_max = MARKS_BYTES_MIN
        if self.marks.capacity > 64 * 1024:
            self.marks = None
        else:
            self.marks.size = 0

    # --- recovered ---

    def fill(self, found):
        """Take over what a Scan of its file says."""
        self.enter(OnDisk.MADE)
        self.count = found.count
        self.last = self.base - 1 if found.last is None else found.last
        self.end = self.written = found.end
        self.entries, self.dues = found.entries, found.dues
        self.count_waiting()

    def recover_fates(self, Fates fates):
        """Take over what an ack file says. The entries must be there already."""
        if fates.places:
            fates.shrink()
            self.fates = fates
        self.count_waiting()

    def assume_delivered(self):
        """After a power cut marks may be lost, so each record counts as delivered once. That is marked, too: else
        the next start would not know it.
        """
        cdef uint64_t places = self.last - self.base + 1
        if self.fates is None:
            self.fates = Fates(self.base)
        self.fates.assume_delivered(places)
        self.mark(&self.out, self.base, <uint32_t>places, 1)

    def count_waiting(self):
        """Count the records that are alive, by the entries and the marks. All of them are unread."""
        cdef const IndexEntry* entry = <const IndexEntry*><const char*>self.entries
        cdef Py_ssize_t i
        self.alive = self.unread_bytes = 0
        for i in range(self.count):
            if self.fate(self.base + entry[i].relative) != MARK_ACKED:
                self.alive += 1
                self.unread_bytes += entry[i].body
        self.unread = self.alive

    cdef uint32_t fate(self, uint64_t position) noexcept:
        """How often a record had been delivered when the log was opened, or MARK_ACKED."""
        return 0 if self.fates is None else self.fates.at(position - self.base)

    def fate_of(self, uint64_t position):
        """The same, for Python."""
        return self.fate(position)


cpdef Py_ssize_t index_beyond(list segments, uint64_t position) except -1:
    """The index of the first segment that begins beyond a position."""
    cdef Py_ssize_t low = 0, high = len(segments), middle
    while low < high:
        middle = (low + high) >> 1
        if position < (<Segment?>segments[middle]).base:
            high = middle
        else:
            low = middle + 1
    return low
