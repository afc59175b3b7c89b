cimport cython

from warren.broker.entry cimport Entry


@cython.final
cdef class EntryList:
    cdef public Entry head
    cdef public Entry tail
    cdef public Entry recent
    cdef public Py_ssize_t count
    cdef public Py_ssize_t bytes

    cpdef append(self, Entry entry)
    @cython.locals(entry=Entry)
    cpdef Entry pop_head(self)
    cpdef remove(self, Entry entry)
    @cython.locals(after=Entry)
    cpdef insert(self, Entry entry)
    cpdef drop(self, Py_ssize_t most)
