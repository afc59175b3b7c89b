cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from warren.broker.due_heap cimport DueHeap
from warren.broker.entry cimport Entry
from warren.broker.entry_list cimport EntryList
from warren.broker.message cimport Message


@cython.final
cdef class Expiry:
    cdef public DueHeap heap
    cdef public dict entries
    cdef uint64_t noted
    cdef readonly Py_ssize_t weeded
    cdef uint32_t weeding
    cdef uint64_t popped_ms
    cdef Py_ssize_t stale
    cdef public uint64_t location

    cpdef int64_t next_due(self) except? -1
    cpdef uint64_t pop_due(self, uint64_t now_ms) except? 0
    cpdef Entry ready_at(self, uint64_t position)
    cpdef bint pass_stale(self) except -1
    cpdef begin_turn(self)
    cpdef note_behind(self, uint64_t due_ms, uint64_t position, uint64_t location)
    cpdef is_noted(self, Entry entry)
    @cython.locals(message=Message, due_ms=uint64_t)
    cpdef note_ready(self, Entry entry)
    @cython.locals(message=Message)
    cdef push(self, Entry entry)
    @cython.locals(entry=Entry, newest=uint64_t)
    cpdef note_new(self, EntryList ready)
    @cython.locals(entry=Entry)
    cpdef have_become_ready(self, EntryList ready)
    cpdef forget(self, Entry entry)
