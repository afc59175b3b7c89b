# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Messages that wait far behind the head of a queue, in as little memory as possible.

A small message takes 24 bytes here instead of 200 as objects. That saves time as well: to have the kernel
provide memory costs more than all else on a message's way in. Messages are kept in blocks, each of which has
a list `messages` beside its bytes:

    block    { record | note }*
    record   number:uint32 size:uint32 body         a small body; all else is as in messages[number]
             number:uint32 0xFFFFFFFF               messages[number] itself, whose body is not small
    note     0xFFFFFFFF:uint32 0 position:uint64    the position of the next record, if there is a gap
             0xFFFFFFFE:uint32 0 time_ms:uint64     when the messages of the next records arrived

Every block begins with a note of the time. Most messages differ from the one before in their body only, so
that `messages` stays short. A record whose message was taken out from the middle has the highest bit of its
number set. A location is a block's number in the upper 32 bits, and the place of a record in that block in
the lower.

`warren perf throughput --consumers 0` watches this.
"""

cimport cython

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.broker.memory cimport Memory
from warren.broker.message cimport Message, message_like

cdef enum:
    BLOCK_BYTES_MIN = 4 * 1024  # of the first block; each further one is twice as large, up to the maximum
    BLOCK_BYTES_MAX = 64 * 1024
    HEAD_BYTES = 8  # of a record: number and size
    NOTE_BYTES = 16
    SMALL_BYTES_MAX = 256  # a body up to this size is copied into the block
    WHOLE_OVERHEAD_BYTES = 200  # what a Message object takes besides its body

cdef uint32_t WHOLE = 0xFFFFFFFF  # the size of a record that refers to a whole message
cdef uint32_t POSITION_NOTE = 0xFFFFFFFF  # kinds of notes, in the place of a record's number
cdef uint32_t TIME_NOTE = 0xFFFFFFFE
cdef uint32_t TAKEN_OUT = 0x80000000  # a bit of a record's number
cdef uint64_t NOTHING = 0xFFFFFFFFFFFFFFFF  # a position beyond all others


@cython.no_gc
cdef class Block:
    """Records and the messages they refer to. All of it counts as used memory while the block exists."""

    def __cinit__(self, Memory memory, uint32_t number, uint64_t base, Py_ssize_t capacity):
        self.data = <uint8_t*>PyMem_RawMalloc(capacity)
        if self.data == NULL:
            raise MemoryError
        self.number = number
        self.base = base
        self.messages = []
        self.memory = memory
        self.capacity = capacity
        self.hold(capacity)

    def __dealloc__(self):
        PyMem_RawFree(self.data)
        self.memory.used_bytes -= self.held_bytes

    cdef void hold(self, Py_ssize_t size) noexcept:
        """Count so many more bytes as used; fewer, if `size` is negative."""
        self.held_bytes += size
        self.memory.used_bytes += size

    cdef void put(self, uint32_t number, uint32_t size) noexcept:
        cdef uint32_t head[2]
        head[0], head[1] = number, size
        memcpy(self.data + self.size, head, HEAD_BYTES)
        self.size += HEAD_BYTES

    cdef void note(self, uint32_t kind, uint64_t value) noexcept:
        self.put(kind, 0)
        memcpy(self.data + self.size, &value, 8)
        self.size += 8


cdef inline bint differ_in_body_only(Message one, Message other) noexcept:
    return (
        one is not None
        and one.exchange is other.exchange
        and one.routing_key is other.routing_key
        and one.properties is other.properties
        and one.persistent == other.persistent
        and one.died == other.died
        and one.scheduled == other.scheduled
    )


cdef class Place:
    """A pointer to a record of a block, with what is known of that record."""

    cdef void begin(self, Block block) noexcept:
        self.block = block
        self.at = 0
        if block is not None:
            self.position = block.base
            self.settle()

    cdef bint is_at_end(self) noexcept:
        return self.block is None or self.at >= self.block.size

    cdef void settle(self) noexcept:
        """Read the notes in front of the next record, and then the head of that record."""
        cdef uint32_t head[2]
        while self.at < self.block.size:
            memcpy(head, self.block.data + self.at, HEAD_BYTES)
            if head[0] == POSITION_NOTE:
                memcpy(&self.position, self.block.data + self.at + HEAD_BYTES, 8)
            elif head[0] == TIME_NOTE:
                memcpy(&self.time_ms, self.block.data + self.at + HEAD_BYTES, 8)
            else:
                self.number = head[0]
                self.size = head[1]
                return
            self.at += NOTE_BYTES

    cdef void step(self) noexcept:
        """Go on to the next record."""
        self.at += HEAD_BYTES + (0 if self.size == WHOLE else self.size)
        self.position += 1
        self.settle()

    cdef bint is_taken_out(self) noexcept:
        return self.number & TAKEN_OUT != 0

    cdef void take_out(self) noexcept:
        self.number |= TAKEN_OUT
        memcpy(self.block.data + self.at, &self.number, 4)

    cdef Message read(self):
        cdef Message like = self.block.messages[self.number & ~TAKEN_OUT]
        if self.size == WHOLE:
            return like
        body = PyBytes_FromStringAndSize(<char*>self.block.data + self.at + HEAD_BYTES, self.size)
        return message_like(like, body, self.time_ms)

    cdef int let_go(self) except -1:
        """The message here leaves. If it is kept whole, the block lets go of it and its memory now; a small
        one goes with the block.
        """
        cdef Message message
        if self.size == WHOLE:
            message = self.block.messages[self.number]
            self.block.messages[self.number] = None
            self.block.hold(-(PyBytes_GET_SIZE(message.body) + WHOLE_OVERHEAD_BYTES))
        return 0


cdef class Pack:
    """Packed messages in order of position: first in, first out, but for those that `take_out` removes."""

    def __cinit__(self, Memory memory):
        self.memory = memory
        self.blocks = deque()
        self.front = Place()

    cdef Block room(self, Py_ssize_t size, uint64_t position, uint64_t time_ms):
        """The block for a record of `size` bytes. Notes of its position and time are written if needed."""
        cdef Py_ssize_t capacity = BLOCK_BYTES_MIN
        if self.last is None or self.last.size + size + 2 * NOTE_BYTES > self.last.capacity:
            if self.last is not None:
                capacity = min(2 * self.last.capacity, <Py_ssize_t>BLOCK_BYTES_MAX)
            self.last = Block(self.memory, self.blocks_made, position, capacity)
            self.blocks_made += 1
            self.last.note(TIME_NOTE, time_ms)
            self.last_time_ms = time_ms
            self.last_position = position - 1
            self.blocks.append(self.last)
        if position != self.last_position + 1:
            self.last.note(POSITION_NOTE, position)
        if time_ms != self.last_time_ms:
            self.last.note(TIME_NOTE, time_ms)
        return self.last

    cpdef uint64_t append(self, Message message, uint64_t position) except? 0:
        """Add a message; return its location, for `take_out`."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(message.body)
        cdef bint small = size <= SMALL_BYTES_MAX
        cdef Block block = self.room(HEAD_BYTES + (size if small else 0), position, message.time_ms)
        cdef uint64_t location = <uint64_t>block.number << 32 | block.size
        self.last_position = position
        self.last_time_ms = message.time_ms
        if not small:
            block.messages.append(message)
            block.template = None
            block.hold(size + WHOLE_OVERHEAD_BYTES)
        elif not differ_in_body_only(block.template, message):
            block.template = message_like(message, b"", 0)
            block.messages.append(block.template)
            block.hold(WHOLE_OVERHEAD_BYTES + PyBytes_GET_SIZE(message.properties))
        block.put(<uint32_t>(len(block.messages) - 1), <uint32_t>size if small else WHOLE)
        if small:
            memcpy(block.data + block.size, PyBytes_AS_STRING(message.body), size)
            block.size += <uint32_t>size
        self.count += 1
        self.bytes += size
        if self.count == 1:
            self.front.begin(self.blocks[0])
            self.next_position = position
        return location

    cpdef Message pop(self):
        """Take out the first message; there must be one."""
        cdef Message message = self.front.read()
        self.front.let_go()
        self.gone(PyBytes_GET_SIZE(message.body))
        if self.count:
            self.front.step()
            self.move_on()
        return message

    cdef int move_on(self) except -1:
        """Have `front` point to the first record that was not taken out; drop the blocks before it."""
        while True:
            if self.front.is_at_end():
                self.blocks.popleft()
                self.front.begin(self.blocks[0])
            elif self.front.is_taken_out():
                self.front.step()
            else:
                self.next_position = self.front.position
                return 0

    cdef int gone(self, Py_ssize_t size) except -1:
        """Count one message less; when none is left, free all blocks."""
        self.count -= 1
        self.bytes -= size
        if self.count == 0:
            self.blocks.clear()
            self.last = None
            self.front.begin(None)
        return 0

    cpdef Message take_out(self, uint64_t location, uint64_t time_ms):
        """Take out a message from the middle; None if that has happened before. Its block must still exist.
        The caller says when the message arrived, since the note of that may be far in front of the record.
        """
        cdef Block first = self.blocks[0]
        cdef Place place = Place()
        cdef Message message
        place.block = self.blocks[<uint32_t>(location >> 32) - first.number]
        place.at = <uint32_t>location
        place.settle()
        if place.is_taken_out():
            return None
        place.time_ms = time_ms
        message = place.read()
        place.let_go()
        place.take_out()
        self.gone(PyBytes_GET_SIZE(message.body))
        if self.count and place.block is self.front.block and place.at == self.front.at:
            self.front.number = place.number
            self.move_on()
        return message

    def __repr__(self):
        return f"<Pack: {self.count} messages, {self.bytes} bytes>"


cdef class PackBrowser:
    """Reads the messages of a pack in order, and takes none out."""

    def __cinit__(self, Pack pack):
        self.pack = pack
        self.place = Place()

    cpdef uint64_t next_position(self, uint64_t above) except? 0:
        """The position of the first message above this one; NOTHING if there is none."""
        cdef Place place = self.place
        if self.pack.count == 0:
            place.begin(None)
            return NOTHING
        if place.block is None or place.position < self.pack.next_position:
            self.place = place = Place()
            place.block = self.pack.front.block
            place.at = self.pack.front.at
            place.position = self.pack.front.position
            place.time_ms = self.pack.front.time_ms
            place.settle()
        while True:
            if place.is_at_end():
                if not self.next_block():
                    return NOTHING
            else:
                place.settle()  # read the head again: since the last call, records came or were taken out
                if place.position > above and not place.is_taken_out():
                    return place.position
                place.step()

    cdef bint next_block(self) except -1:
        cdef Block first = self.pack.blocks[0]
        cdef Py_ssize_t index = self.place.block.number - first.number + 1
        if index >= len(self.pack.blocks):
            return False
        self.place.begin(self.pack.blocks[index])
        return True

    cpdef Message read(self):
        """The message whose position `next_position` has just returned."""
        return self.place.read()

    @property
    def location(self):
        """Where that message is, for `Pack.take_out`."""
        return <uint64_t>self.place.block.number << 32 | self.place.at
