from libc.stdint cimport uint32_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.format cimport ChunkEntry
from warren.storage.segment cimport Segment


cdef class Chunks:
    cdef Buffer buffer  # the entries, as they are written
    cdef bytes noted    # the bits that the last chunk was last given

    cdef Py_ssize_t count(self) noexcept
    cdef ChunkEntry* at(self, Py_ssize_t index) noexcept
    cdef int note(self, uint32_t relative, Py_ssize_t offset, uint64_t time_ms, bytes values) except -1
    cdef Py_ssize_t of_position(self, uint64_t relative) noexcept
    cdef Py_ssize_t before_time(self, uint64_t time_ms) noexcept
    cdef Py_ssize_t of_offset(self, Py_ssize_t offset) noexcept


cdef class StreamSegment(Segment):
    cdef public uint64_t first_ms  # the time of the first record
    cdef public uint64_t last_ms   # the time of the last record, by the clock of that time
    cdef public uint64_t until_ms  # no record is newer: later segments begin then, since the clock was set back
    cdef public Chunks chunks      # until they are written; then they are read when they are needed

    cdef Py_ssize_t add(self, Message message, uint64_t position, uint64_t time_ms, bytes values) except -1
    cpdef uint64_t safe_last(self)
    cpdef uint64_t newest_ms(self)


cpdef bytes values_of(bytes properties)
cdef bint may_have(const ChunkEntry* chunk, bytes values) noexcept
