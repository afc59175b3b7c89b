from libc.stdint cimport uint8_t, uint64_t

from warren.broker.message cimport Message
from warren.broker.store cimport StreamReader
from warren.storage.cursor cimport Cursor
from warren.storage.segment cimport Segment
from warren.storage.stream_segment cimport Chunks, StreamSegment
from warren.storage.window cimport Window


cdef class Reach:
    cdef public uint64_t position     # of the last record that may be read,
    cdef public uint64_t base         # the base of its segment,
    cdef public Py_ssize_t end        # and where the record ends there

    cpdef Py_ssize_t within(self, Segment segment)


cdef class LogReader(StreamReader):
    cdef list segments            # those of the log
    cdef Reach reach              # None: whatever is written may be read
    cdef Cursor cursor
    cdef Window shared            # the window of all readers near the end
    cdef uint64_t wanted          # the position of the next record, or less if positions were skipped
    # the filter
    cdef object filter            # None: all messages are wanted
    cdef list bits                # of each alternative, as chunks have them
    cdef bint match_unfiltered    # messages without a value are wanted, too
    cdef Chunks chunks            # those of the cursor's segment
    cdef bytes known              # the properties that were last compared with the filter,
    cdef bint known_matches       # and what came of it
    # the header with the offset
    cdef bytes plain              # the properties of the message before,
    cdef bytes template           # the same with the header,
    cdef Py_ssize_t template_at   # and where the offset stands in them

    cpdef Py_ssize_t ready(self) except? -3
    cpdef Message take(self)
    cpdef uint64_t next_position(self)
    cdef bint enter(self) except -1
    cdef bint go_to_next_segment(self) except -1
    cdef Py_ssize_t skip_chunks(self) except -1
    cdef bint matches(self, const uint8_t* p) except -1
    cdef share_window(self, StreamSegment segment)
    cdef bytes with_offset(self, const uint8_t* properties, Py_ssize_t size, uint64_t offset)
