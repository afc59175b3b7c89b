cimport cython
from libc.stdint cimport uint32_t, uint64_t

from warren.broker.entry cimport Entry
from warren.broker.message cimport Message


@cython.final
cdef class EntryList:
    cdef public Entry head
    cdef public Entry tail
    cdef public Entry recent
    cdef public Py_ssize_t count
    cdef public Py_ssize_t bytes
    cdef readonly Py_ssize_t passed

    @cython.locals(entry=Entry)
    cpdef append_new(
        self, Message message, object queue, uint64_t position, uint32_t location, uint32_t delivery_count
    )
    cpdef append(self, Entry entry)
    cpdef extend(self, EntryList more)
    @cython.locals(entry=Entry)
    cpdef Entry pop_head(self)
    cpdef remove(self, Entry entry)
    @cython.locals(after=Entry, position=uint64_t, steps=Py_ssize_t)
    cpdef Py_ssize_t insert(self, Entry entry) except -1
    @cython.locals(found=Entry, distance=uint64_t, recent=uint64_t)
    cpdef Entry nearest(self, uint64_t position)
    @cython.locals(entry=Entry)
    cpdef Entry first_beyond(self, uint64_t position, Entry near)
    cpdef drop(self, Py_ssize_t most)
