# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Finds which of very many messages is due next, at 24 bytes for each, wherever the message itself lies.

A binary heap in one piece of memory, ordered by time and, for equal times, by position.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint64_t

cdef enum:
    CAPACITY_MIN = 64

cdef uint64_t NEVER = 0xFFFFFFFFFFFFFFFF


cdef inline bint is_before(const Due* one, const Due* other) noexcept:
    return one.due_ms < other.due_ms or (one.due_ms == other.due_ms and one.position < other.position)


cdef class DueHeap:
    """After `pop`, `position` and `location` are those of the item that was taken out."""

    def __dealloc__(self):
        PyMem_RawFree(self.items)

    cpdef int push(self, uint64_t due_ms, uint64_t position, uint64_t location) except -1:
        cdef Due item
        if self.count == self.capacity:
            self.resize(max(<Py_ssize_t>CAPACITY_MIN, self.capacity * 2))
        item.due_ms, item.position, item.location = due_ms, position, location
        self.count += 1
        self.rise(self.count - 1, item)
        return 0

    cpdef uint64_t next_due(self) noexcept:
        """The time at which the first item is due; NEVER if the heap is empty."""
        return self.items[0].due_ms if self.count else NEVER

    cpdef int pop(self) except -1:
        """Take out the first item; there must be one."""
        self.position = self.items[0].position
        self.location = self.items[0].location
        self.count -= 1
        if self.count:
            self.sink(0, self.items[self.count])
        if self.capacity > CAPACITY_MIN and self.count < self.capacity // 4:
            self.resize(self.capacity // 2)
        return 0

    def keep(self, uint64_t least, dict known):
        """Keep only the items whose position is at least `least` and not in `known`."""
        cdef Py_ssize_t i, kept = 0
        cdef uint64_t position
        for i in range(self.count):
            position = self.items[i].position
            if position >= least and position not in known:
                self.items[kept] = self.items[i]
                kept += 1
        self.count = kept
        for i in range(kept // 2 - 1, -1, -1):
            self.sink(i, self.items[i])
        if self.capacity > CAPACITY_MIN and kept < self.capacity // 4:
            self.resize(max(<Py_ssize_t>CAPACITY_MIN, kept * 2))

    def clear(self):
        self.count = 0
        self.resize(0)

    def __repr__(self):
        return f"<DueHeap of {self.count} items>"

    cdef int resize(self, Py_ssize_t capacity) except -1:
        if capacity == 0:
            PyMem_RawFree(self.items)
            self.items = NULL
        else:
            items = <Due*>PyMem_RawRealloc(self.items, capacity * sizeof(Due))
            if items == NULL:
                raise MemoryError
            self.items = items
        self.capacity = capacity
        return 0

    cdef void rise(self, Py_ssize_t at, Due item) noexcept:
        cdef Py_ssize_t parent
        while at:
            parent = (at - 1) // 2
            if not is_before(&item, &self.items[parent]):
                break
            self.items[at] = self.items[parent]
            at = parent
        self.items[at] = item

    cdef void sink(self, Py_ssize_t at, Due item) noexcept:
        cdef Py_ssize_t child
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and is_before(&self.items[child + 1], &self.items[child]):
                child += 1
            if not is_before(&self.items[child], &item):
                break
            self.items[at] = self.items[child]
            at = child
        self.items[at] = item
