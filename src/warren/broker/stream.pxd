cimport cython
from libc.stdint cimport uint64_t

from warren.broker.clock cimport follow
from warren.broker.consumer cimport Consumer, View
from warren.broker.entry cimport Entry
from warren.broker.message cimport Message
from warren.broker.queue cimport Queue
from warren.broker.store cimport StreamLog, StreamReader


cdef int NOT_YET_FOUND
cdef Py_ssize_t SENT_A_TURN_MAX
cdef Py_ssize_t SENT_OVERHEAD
cdef uint64_t NEVER


cdef class StreamView(View):
    cdef public StreamReader reader
    cdef public str name
    cdef readonly object out
    cdef readonly set done
    cdef uint64_t counts_before


cdef StreamView stream_view(Consumer consumer)


cdef class Stream(Queue):
    cdef public StreamLog log
    cdef public list readers
    cdef readonly list watchers
    cdef uint64_t position
    cdef uint64_t newest_ms
    cdef object retention
    cdef bint awaiting
    cdef Py_ssize_t served
    cdef bint going_on

    cpdef int publish(self, Message message) except -1
    cpdef touch(self)
    @cython.locals(index=Py_ssize_t, first=Py_ssize_t)
    cpdef drain(self)
    @cython.locals(view=StreamView, reader=StreamReader, size=Py_ssize_t, entry=Entry, sent=Py_ssize_t)
    cdef bint serve(self, Consumer consumer) except -1
    @cython.locals(view=StreamView)
    cpdef settle(self, Entry entry)
    cpdef take_back(self, Entry entry)
    cpdef reject(self, Entry entry)
    cpdef forget(self, Entry entry)
    cpdef requeue(self, Entry entry)
    cpdef Entry get(self, bint no_ack)
    cpdef Py_ssize_t length(self) except -1
    cpdef Py_ssize_t body_bytes(self) except -1
