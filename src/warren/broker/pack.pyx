# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Messages that wait far behind the head of a queue, in as little memory as they can do with.

A small message takes 24 bytes here instead of 200 as objects, and memory that is not touched is time
saved: to have the kernel provide it costs more than all else on the way in. They are kept in blocks:

    block    { record }*
    record   number:uint32 size:uint32 body     a small body; the rest is as in messages[number]
             number:uint32 0xFFFFFFFF           messages[number] itself, whose body is not small

Most messages differ from the one before in nothing but the body, so that few of `messages` are needed.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from warren.broker.message cimport Message

cdef enum:
    BLOCK_BYTES = 64 * 1024
    HEAD_BYTES = 8
    SMALL_BYTES_MAX = 256

cdef uint32_t WHOLE = 0xFFFFFFFF


cdef class Block:
    def __cinit__(self):
        self.data = <uint8_t*>malloc(BLOCK_BYTES)
        if self.data == NULL:
            raise MemoryError
        self.messages = []

    def __dealloc__(self):
        free(self.data)


cdef inline bint differ_in_body_only(Message one, Message other) noexcept:
    return (
        one is not None
        and one.exchange is other.exchange
        and one.routing_key is other.routing_key
        and one.properties is other.properties
        and one.persistent == other.persistent
    )


cdef class Pack:
    """First in, first out."""

    def __cinit__(self):
        self.blocks = deque()

    cdef Block room(self, Py_ssize_t size):
        """The block that the next `size` bytes go to."""
        if self.last is None or self.last.size + size > BLOCK_BYTES:
            self.last = Block()
            if self.first is None:
                self.first = self.last
            else:
                self.blocks.append(self.last)
        return self.last

    cpdef append(self, Message message):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(message.body)
        cdef bint small = size <= SMALL_BYTES_MAX
        cdef Block block = self.room(HEAD_BYTES + size if small else HEAD_BYTES)
        cdef uint32_t head[2]
        if not small:
            block.messages.append(message)
            block.template = None
        elif not differ_in_body_only(block.template, message):
            block.template = Message(
                message.exchange, message.routing_key, message.properties, b"", message.persistent
            )
            block.messages.append(block.template)
        head[0] = <uint32_t>(len(block.messages) - 1)
        head[1] = <uint32_t>size if small else WHOLE
        memcpy(block.data + block.size, head, HEAD_BYTES)
        block.size += HEAD_BYTES
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
        return message
