cimport cython
from libc.stdint cimport uint32_t, uint64_t

from warren.broker.entry cimport Entry
from warren.broker.entry_list cimport EntryList
from warren.broker.message cimport Message
from warren.broker.store cimport MessageLog
from warren.storage.commit cimport GroupCommit
from warren.storage.cursor cimport Cursor
from warren.storage.log_tap cimport LogTap
from warren.storage.segment cimport Segment
from warren.storage.segment_chain cimport SegmentChain


cdef class QueueLog(MessageLog):
    # what each is for is at the attribute in queue_log.py
    cdef readonly list segments
    cdef readonly bint volatile
    cdef readonly SegmentChain chain
    cdef object problems
    cdef GroupCommit commit
    cdef LogTap tap
    cdef Cursor cursor
    cdef Segment recent
    cdef readonly object purged

    @cython.locals(tail=Segment, size=Py_ssize_t)
    cpdef uint64_t append(self, Message message, uint64_t position, bint taken) except? 0
    @cython.locals(position=uint64_t, segment=Segment)
    cpdef uint64_t peek(self) except? 0
    @cython.locals(position=uint64_t, message=Message, segment=Segment, location=Py_ssize_t)
    cpdef read_on(self, object queue, EntryList ready, Py_ssize_t most, Py_ssize_t most_bytes, uint64_t before)
    @cython.locals(position=uint64_t, segment=Segment, cursor=Cursor, reading=Segment)
    cpdef give_back(self, Entry entry)
    @cython.locals(segment=Segment)
    cpdef delivered(self, uint64_t position, uint32_t deliveries)
    @cython.locals(segment=Segment)
    cpdef acked(self, uint64_t position)
    @cython.locals(recent=Segment)
    cpdef Segment find(self, uint64_t position)
    @cython.locals(segment=Segment, message=Message)
    cpdef Message take_out(self, uint64_t position, uint64_t location)
    @cython.locals(segment=Segment)
    cpdef uint32_t deliveries_of(self, uint64_t position) except? 0
    cpdef bint has_returned(self, uint64_t position) except -1
    @cython.locals(segment=Segment, index=Py_ssize_t)
    cdef Segment waiting_in(self, uint64_t position)
    cdef leaves(self, Segment segment, Py_ssize_t body_bytes)
    cdef all_is_read(self, Segment segment)
