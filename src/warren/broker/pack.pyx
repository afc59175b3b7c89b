# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Messages that wait far behind the head of a queue, in as little memory as they can do with.

A small message takes 24 bytes here instead of 200 as objects, and memory that is not touched is time
saved: to have the kernel provide it costs more than all else on the way in. They are kept in blocks:

    block    { record }*
    record   number:uint32 size:uint32 body     a small body; the rest is as in messages[number]
             number:uint32 0xFFFFFFFF           messages[number] itself, whose body is not small
             0xFFFFFFFF:uint32 0 position:uint64    the next position, where it is not the one before plus one

Most messages differ from the one before in nothing but the body, so that few of `messages` are needed.
"""

cimport cython

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from warren.broker.memory cimport Memory
from warren.broker.message cimport Message

cdef enum:
    BLOCK_BYTES = 64 * 1024
    HEAD_BYTES = 8
    GAP_BYTES = 16
    SMALL_BYTES_MAX = 256
    WHOLE_OVERHEAD_BYTES = 200

cdef uint32_t WHOLE = 0xFFFFFFFF
cdef uint32_t GAP = 0xFFFFFFFF


@cython.no_gc
cdef class Block:
    """What it holds counts as used memory for as long as it is there."""

    def __cinit__(self, Memory memory):
        self.data = <uint8_t*>malloc(BLOCK_BYTES)
        if self.data == NULL:
            raise MemoryError
        self.messages = []
        self.memory = memory
        self.hold(BLOCK_BYTES)

    def __dealloc__(self):
        free(self.data)
        self.memory.used_bytes -= self.held_bytes

    cdef void hold(self, Py_ssize_t size) noexcept:
        self.held_bytes += size
        self.memory.used_bytes += size


cdef inline bint differ_in_body_only(Message one, Message other) noexcept:
    return (
        one is not None
        and one.exchange is other.exchange
        and one.routing_key is other.routing_key
        and one.properties is other.properties
        and one.persistent == other.persistent
        and one.died == other.died
    )


cdef class Pack:
    """First in, first out. `next_position` is the first one's."""

    def __cinit__(self, Memory memory):
        self.memory = memory
        self.blocks = deque()

    cdef Block room(self, Py_ssize_t size):
        """The block that the next `size` bytes go to."""
        if self.last is None or self.last.size + size > BLOCK_BYTES:
            self.last = Block(self.memory)
            if self.first is None:
                self.first = self.last
            else:
                self.blocks.append(self.last)
        return self.last

    cpdef append(self, Message message, uint64_t position):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(message.body)
        cdef bint small = size <= SMALL_BYTES_MAX
        cdef Block block = self.room(HEAD_BYTES + GAP_BYTES + (size if small else 0))
        if self.count == 0:
            self.next_position = position
        elif position != self.last_position + 1:
            put_head(block, GAP, 0)
            memcpy(block.data + block.size, &position, 8)
            block.size += 8
        self.last_position = position
        if not small:
            block.messages.append(message)
            block.template = None
            block.hold(size + WHOLE_OVERHEAD_BYTES)
        elif not differ_in_body_only(block.template, message):
            block.template = Message(
                message.exchange, message.routing_key, message.properties, b"", message.persistent
            )
            block.messages.append(block.template)
        put_head(block, <uint32_t>(len(block.messages) - 1), <uint32_t>size if small else WHOLE)
        if small:
            memcpy(block.data + block.size, PyBytes_AS_STRING(message.body), size)
            block.size += <uint32_t>size
        self.count += 1
        self.bytes += size

    cpdef Message pop(self):
        """The first message; there must be one."""
        cdef Block block = self.first
        cdef uint32_t head[2]
        cdef Message message
        memcpy(head, block.data + block.at, HEAD_BYTES)
        block.at += HEAD_BYTES
        message = block.messages[head[0]]
        if head[1] != WHOLE:
            body = PyBytes_FromStringAndSize(<char*>block.data + block.at, head[1])
            block.at += head[1]
            message = Message(message.exchange, message.routing_key, message.properties, body, message.persistent)
        self.count -= 1
        self.bytes -= PyBytes_GET_SIZE(message.body)
        if block.at == block.size:
            self.first = self.blocks.popleft() if self.blocks else None
            if self.first is None:
                self.last = None
        self.step()
        return message

    cdef void step(self) noexcept:
        """On to the next one's position."""
        cdef Block block = self.first
        cdef uint32_t head[2]
        self.next_position += 1
        if block is None:
            return
        memcpy(head, block.data + block.at, HEAD_BYTES)
        if head[0] == GAP:
            memcpy(&self.next_position, block.data + block.at + HEAD_BYTES, 8)
            block.at += GAP_BYTES


cdef inline void put_head(Block block, uint32_t number, uint32_t size) noexcept:
    cdef uint32_t head[2]
    head[0], head[1] = number, size
    memcpy(block.data + block.size, head, HEAD_BYTES)
    block.size += HEAD_BYTES
