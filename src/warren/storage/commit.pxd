cimport cython
from libc.stdint cimport uint64_t

from warren.amqp.budget cimport Budget
from warren.storage.disk cimport Buffer
from warren.storage.segment cimport Segment
from warren.storage.window cimport Window

cdef long MARKS_WORK
cdef long FIRST_MARKS_WORK


cdef class Flight:
    cdef public uint64_t number
    cdef public double begun
    cdef public list waiters
    cdef public list segments
    cdef public list waiting
    cdef public list part
    cdef public list writes
    cdef public bint is_journaled
    cdef public list lines
    cdef public set names
    cdef public list directories


cdef class GroupCommit:
    cdef public Py_ssize_t unsafe_bytes
    cdef public uint64_t written_bytes
    cdef public object on_round_took
    cdef public uint64_t gathering
    cdef public list dirty
    cdef public list marked
    cdef public list dropped
    cdef public Budget budget
    cdef public dict offsets
    cdef public set dead_tails
    cdef public list waiters
    cdef public object files
    cdef readonly Window window
    cdef readonly object rewritings
    cdef public object failure
    cdef public Flight flight
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
    cdef Buffer _buffer(self)
    cdef _keep(self, Buffer buffer)
    @cython.locals(segment=Segment, segments=list)
    cpdef begin(self)
    cdef _write(self, Flight flight, Segment segment)
    @cython.locals(segment=Segment, flight=Flight)
    cpdef completed(self)
    @cython.locals(segment=Segment)
    cdef _unpin(self, Flight flight)
    @cython.locals(buffer=Buffer, size=Py_ssize_t)
    cdef _landed(self, Segment segment)
    @cython.locals(segment=Segment)
    cdef _finish(self, Flight flight)
    cpdef mark(self, Segment segment)
    cdef _charge(self, Py_ssize_t written)
    @cython.locals(segment=Segment)
    cpdef write_marks(self)
    cdef _write_marks_of(self, Segment segment)
