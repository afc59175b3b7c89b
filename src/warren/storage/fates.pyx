# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What the marks of a segment come to: how often each position was delivered, or that it is done with.

However many marks there are, this takes two bytes a position, or four if a message was delivered more than 65,534
times. The order of the marks makes no difference. They are read without the interpreter's lock, since the event loop
would wait for it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from warren.storage.format cimport MARK_ACKED, MARK_BYTES, POSITIONS_MAX, Mark, mark_is_sound, seal_mark

cdef enum:
    NARROW_DONE = 0xFFFF
    NARROW_DELIVERIES_MAX = 0xFFFE


cdef class Fates:
    """What each attribute is for is in fates.pxd."""

    def __init__(self, uint64_t base):
        self.base = base

    def __dealloc__(self):
        PyMem_RawFree(self.table)

    # --- taking in ---

    def add(self, const uint8_t[::1] marks):
        """Take in marks as an ack file has them behind its header. How many of them are not sound."""
        cdef Py_ssize_t size = marks.shape[0], bad = 0
        cdef int failed
        if size == 0:
            return 0
        with nogil:
            failed = self.fold(&marks[0], size, &bad)
        if failed:
            raise MemoryError
        return bad

    def assume_delivered(self, uint64_t places):
        """All positions that are not done with were delivered at least once."""
        if self.raise_to(0, places, 1):
            raise MemoryError

    cdef int fold(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* bad) noexcept nogil:
        """Take in marks, and count those that are not sound in `bad`. 0, or -1 if there is no memory."""
        cdef Py_ssize_t at = 0
        cdef const Mark* mark
        while at + MARK_BYTES <= size:
            mark = <const Mark*>(data + at)
            if not mark_is_sound(mark, self.base):
                bad[0] += 1
            elif self.raise_to(mark.first, <uint64_t>mark.first + mark.count, mark.deliveries):
                return -1
            at += MARK_BYTES
        bad[0] += at < size
        return 0

    cdef int raise_to(self, uint64_t first, uint64_t end, uint32_t fate) noexcept nogil:
        """The highest number holds, and done with is the highest of all."""
        cdef uint64_t i
        cdef uint16_t* narrow
        cdef uint32_t* wide
        cdef uint16_t narrow_fate
        self.places = max(self.places, end)
        end = min(end, <uint64_t>POSITIONS_MAX)
        if end > self.room and self.make_room(end):
            return -1
        if not self.wide and fate > NARROW_DELIVERIES_MAX and fate != MARK_ACKED and self.widen():
            return -1
        if self.wide:
            wide = <uint32_t*>self.table
            for i in range(first, end):
                wide[i] = max(wide[i], fate)
        else:
            narrow, narrow_fate = <uint16_t*>self.table, <uint16_t>fate
            for i in range(first, end):
                narrow[i] = max(narrow[i], narrow_fate)
        return 0

    cdef int make_room(self, uint64_t end) noexcept nogil:
        cdef uint64_t room = min(max(end, 2 * self.room), <uint64_t>POSITIONS_MAX)
        cdef size_t each = 4 if self.wide else 2
        cdef uint8_t* moved = <uint8_t*>PyMem_RawRealloc(self.table, room * each)
        if moved == NULL:
            return -1
        memset(moved + self.room * each, 0, (room - self.room) * each)
        self.table, self.room = moved, room
        return 0

    cdef int widen(self) noexcept nogil:
        cdef uint64_t i
        cdef uint16_t* narrow = <uint16_t*>self.table
        cdef uint32_t* wide = <uint32_t*>PyMem_RawCalloc(max(self.room, <uint64_t>1), 4)
        if wide == NULL:
            return -1
        for i in range(self.room):
            wide[i] = MARK_ACKED if narrow[i] == NARROW_DONE else narrow[i]
        PyMem_RawFree(narrow)
        self.table, self.wide = wide, True
        return 0

    cdef int shrink(self) except -1:
        """To what is needed: nothing more will be taken in."""
        cdef uint64_t room = min(self.places, <uint64_t>POSITIONS_MAX)
        if 0 < room < self.room:
            self.table = PyMem_RawRealloc(self.table, room * (4 if self.wide else 2))
            self.room = room
        return 0

    # --- asking ---

    cdef uint32_t at(self, uint64_t relative) noexcept nogil:
        """How often it was delivered, or MARK_ACKED."""
        cdef uint16_t known
        if relative >= self.room:
            return 0
        if self.wide:
            return (<uint32_t*>self.table)[relative]
        known = (<uint16_t*>self.table)[relative]
        return MARK_ACKED if known == NARROW_DONE else known

    def of(self, uint64_t position):
        return self.at(position - self.base)

    def leave_undone(self, uint64_t start=0):
        """Whether something at the base plus `start`, or above, was delivered and is not done with."""
        cdef uint64_t i
        cdef uint32_t fate
        for i in range(start, self.room):
            fate = self.at(i)
            if fate != 0 and fate != MARK_ACKED:
                return True
        return False

    def acked_runs(self, uint64_t places):
        """Runs [first, count] of the first `places` positions, counted from the base, that are done with."""
        cdef list runs = []
        cdef uint64_t at = 0, end = min(places, self.room)
        cdef Mark run
        while self.next_run(&at, end, &run):
            if run.deliveries == MARK_ACKED:
                runs.append([run.first, run.count])
        return runs

    def encode(self):
        """As few marks as say the same, as they are in an ack file."""
        cdef uint64_t at = 0
        cdef Py_ssize_t count = 0
        cdef Mark run
        cdef bytes data
        cdef Mark* to
        while self.next_run(&at, self.room, &run):
            count += 1
        data = PyBytes_FromStringAndSize(NULL, count * MARK_BYTES)
        to, at = <Mark*>PyBytes_AS_STRING(data), 0
        while self.next_run(&at, self.room, &run):
            seal_mark(&run, self.base)
            to[0] = run
            to += 1
        return data

    cdef bint next_run(self, uint64_t* at, uint64_t end, Mark* run) noexcept nogil:
        """The next positions of one fate that have any; `at` moves behind them. Whether there are some."""
        cdef uint64_t i = at[0]
        while i < end and self.at(i) == 0:
            i += 1
        if i >= end:
            return False
        run.first, run.deliveries = <uint32_t>i, self.at(i)
        while i < end and self.at(i) == run.deliveries:
            i += 1
        run.count = <uint32_t>(i - run.first)
        at[0] = i
        return True
