from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.fates cimport Fates
from warren.storage.format cimport Mark


cdef class Segment:
    cdef readonly str path
    cdef public object log
    cdef readonly uint64_t base
    cdef public uint64_t last
    cdef public Py_ssize_t count
    cdef public Py_ssize_t alive
    cdef public Py_ssize_t unread
    cdef public Py_ssize_t unread_bytes
    cdef public Py_ssize_t end
    cdef public Py_ssize_t written
    cdef public bint closed
    cdef public bint indexed
    cdef public bint damaged
    cdef public bint dropped
    cdef public bint volatile
    cdef public bint dirty
    cdef public bint created
    cdef public bint named
    cdef bint ended
    cdef public Buffer gathered
    cdef public Buffer flying
    # what was delivered and acked, and is to be written
    cdef public bint marked
    cdef public Py_ssize_t marks_written
    cdef public Py_ssize_t acks_bytes_max
    cdef public bint rewriting
    cdef Buffer marks
    cdef Py_ssize_t marks_bytes_max
    cdef Mark done
    cdef Mark out
    # which of the unread ones were taken out
    cdef bytearray gone
    # what recovery found
    cdef public bytes entries
    cdef public bytes dues
    cdef Fates fates

    cpdef bint is_full(self, Py_ssize_t segment_bytes, uint64_t position)
    cdef Py_ssize_t append(self, Message message, uint64_t position, uint64_t time_ms) except -1
    cdef int mark(self, Mark* run, uint64_t position, uint32_t count, uint32_t deliveries) except -1
    cdef int push(self, Mark* run) except -1
    cdef int fold_marks(self) except -1
    cpdef int note_delivered(self, uint64_t position, uint32_t deliveries) except -1
    cpdef int note_done(self, uint64_t position, uint32_t count) except -1
    cdef int put_large(self, Py_ssize_t size, uint64_t position, uint64_t time_ms, Message message) except -1
    cdef const uint8_t* in_memory(self, Py_ssize_t offset, Py_ssize_t* left)
    cdef Message message_of(self, const uint8_t* p, Message like)
    cdef int take_out(self, uint64_t position) except -1
    cpdef int give_back(self, uint64_t position, uint32_t deliveries) except -1
    cdef bint is_gone(self, uint64_t position) noexcept
    cdef bint waits(self, uint64_t position) noexcept
    cpdef int note_rest_done(self, uint64_t first) except -1
    cdef uint32_t fate(self, uint64_t position) noexcept


cpdef Py_ssize_t index_beyond(list segments, uint64_t position) except -1
