from libc.stdint cimport uint64_t

from warren.storage.segment cimport Segment
from warren.storage.window cimport Window


cdef class GroupCommit:
    cdef public Py_ssize_t unsafe_bytes
    cdef public uint64_t written_bytes
    cdef public uint64_t gathering
    cdef public list dirty
    cdef public list marked
    cdef public list dropped
    cdef public list offsets
    cdef public set dead_tails
    cdef public list waiters
    cdef public object files
    cdef readonly Window window
    cdef readonly object rewritings
    cdef public object failure
    cdef public object flight
    cdef object timers
    cdef object disk
    cdef object housekeeping
    cdef object definitions
    cdef readonly object journal
    cdef object watcher
    cdef bint sync
    cdef bint scheduled
    cdef public bint marks_wait
    cdef public bint stopped
    cdef dict condemned
    cdef public dict leaving
    cdef public object to_tell
    cdef list buffers
    cdef Py_ssize_t buffered_bytes

    cpdef gather(self, Segment segment)
    cpdef mark(self, Segment segment)
