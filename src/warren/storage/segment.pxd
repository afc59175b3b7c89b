from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.broker.message cimport Message
from warren.storage.disk cimport Buffer
from warren.storage.fates cimport Fates
from warren.storage.format cimport Mark


cdef class Segment:
    cdef readonly str path               # of its files, without their suffixes
    cdef public object directory         # the LogDirectory of its log; None until a log has taken it over
    cdef readonly uint64_t base          # the position of its first record
    cdef public uint64_t epoch           # the term of the leader that began it; 0 of a node that is alone
    cdef public uint64_t last            # the position of its last record; base - 1 while there is none
    # its life: changed by `enter` alone
    cdef readonly object life
    cdef readonly object on_disk
    cdef public bint damaged             # not all of it could be read, so its files are never deleted
    cdef public bint unjournaled         # the journal may have bytes for this path that were cut off since
    cdef public bint superseded          # another segment has its path now, so its files are not deleted
    cdef public bint volatile            # neither synced nor kept over a restart
    # its records
    cdef public Py_ssize_t count         # how many there are
    cdef public Py_ssize_t alive         # of these, how many are not done with
    cdef public Py_ssize_t unread        # of these, how many the queue has neither read on to nor taken out
    cdef public Py_ssize_t unread_bytes  # the size of the bodies of the unread ones
    cdef bytearray gone                  # a bit for each position: it was taken out, so the cursor skips it
    cdef bytearray returned              # likewise: it had been delivered since the start when it was given back
    cdef bint ended                      # a large record is the last one here: the next goes to another segment
    # its bytes: see the picture in segment.pyx
    cdef public Py_ssize_t told          # of a log that is copied: how many bytes were handed out to its copies,
    cdef public Py_ssize_t told_count    # and how many records these are
    cdef public Py_ssize_t end           # the size of the file once all records are written
    cdef public Py_ssize_t written       # how many bytes are written and synced
    cdef public bint dirty               # whether the round that gathers now has it
    cdef public Buffer gathered          # records of the round that gathers
    cdef public Buffer flying            # records of the round that the disk is writing
    # marks of what was delivered and acked
    cdef public bint marked              # whether the group commit is about to write some
    cdef public Py_ssize_t marks_written # the size of the ack file
    cdef public Py_ssize_t acks_bytes_max  # an ack file that is larger is written anew
    cdef public bint rewriting           # whether that is under way
    cdef Buffer marks                    # marks that are not in the ack file yet
    cdef Py_ssize_t marks_bytes_max      # when there are more of these, they are folded
    cdef Mark done                       # the run of acked positions that may still grow
    cdef Mark out                        # the run of delivered positions that may still grow
    # what recovery found
    cdef public bytes entries            # those of the index; only while recovery needs them
    cdef public bytes dues               # which records are due when; until the queue has asked for them
    cdef Fates fates                     # what became of the records in the time before

    cpdef enter(self, object state)
    cpdef bint is_closed(self) noexcept
    cpdef bint is_dropped(self) noexcept
    cpdef bint is_removed(self) noexcept
    cpdef bint is_made(self) noexcept
    cpdef bint is_named(self) noexcept
    cpdef bint can_be_journaled(self) noexcept
    cpdef end_here(self)
    cpdef bint is_full(self, Py_ssize_t segment_bytes, uint64_t position)
    cdef Py_ssize_t append(self, Message message, uint64_t position, uint64_t time_ms) except -1
    cdef int mark(self, Mark* run, uint64_t position, uint32_t count, uint32_t deliveries) except -1
    cdef int push(self, Mark* run) except -1
    cdef int begin_marks(self) except -1
    cdef int fold_marks(self) except -1
    cpdef int note_delivered(self, uint64_t position, uint32_t deliveries) except -1
    cpdef int note_done(self, uint64_t position, uint32_t count) except -1
    cdef int put_large(self, Py_ssize_t size, uint64_t position, uint64_t time_ms, Message message) except -1
    cdef const uint8_t* in_memory(self, Py_ssize_t offset, Py_ssize_t* left)
    cdef Message message_of(self, const uint8_t* p, Message like)
    cdef int take_out(self, uint64_t position) except -1
    cpdef int take_out_all(self, uint64_t first, uint64_t last) except -1
    cpdef int give_back(self, uint64_t position, uint32_t deliveries, bint returned) except -1
    cpdef bint has_returned(self, uint64_t position) noexcept
    cdef bint is_gone(self, uint64_t position) noexcept
    cdef bint waits(self, uint64_t position) noexcept
    cpdef int note_rest_done(self, uint64_t first) except -1
    cdef uint32_t fate(self, uint64_t position) noexcept


cpdef Py_ssize_t index_beyond(list segments, uint64_t position) except -1
