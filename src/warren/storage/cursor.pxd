from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.segment cimport Segment
from warren.storage.window cimport Window

cdef extern from *:
    """
    #define WARREN_NOTHING 0xFFFFFFFFFFFFFFFFu
    """
    const uint64_t NOTHING "WARREN_NOTHING"  # in place of a position: the same as broker.store.NOTHING_TO_READ


cdef class Cursor:
    cdef readonly Segment segment      # the one that is read; None if there is nothing to read
    cdef readonly Py_ssize_t offset    # where the next record begins
    cdef readonly uint64_t above       # the position of the record before
    cdef readonly uint32_t deliveries  # of the record whose position was just asked for
    cdef object files                  # opens the segment's file
    cdef object problems               # told of bad records
    cdef Message like                  # the message before, with which the next may share strings
    cdef Window window                 # on the file, while it is needed
    cdef Py_ssize_t sound_at           # the record at this offset was checked,
    cdef Py_ssize_t sound_length       # and has this size
    cdef Py_ssize_t step               # how many bytes are read from the file at a time

    cpdef move(self, Segment segment, Py_ssize_t offset)
    cpdef seek(self, Segment segment, Py_ssize_t offset, uint64_t above)
    cpdef skip_to_end(self, Segment segment)
    cpdef set_step(self, Py_ssize_t size)
    cpdef rest(self)
    cdef let_go_of_large(self)
    cpdef bint step_over_large(self)
    cpdef uint64_t position(self, uint64_t beyond=*) except? 0
    cpdef Message look(self)
    cpdef Message take(self)
    cdef Message message_of(self, const uint8_t* p)
    cdef const uint8_t* record(self, Py_ssize_t* length) except? NULL
    cdef const uint8_t* record_in_file(self, Py_ssize_t* length) except? NULL
    cpdef find_next(self)
