cimport cython

from warren.storage.segment cimport Segment


cdef class LogTap:
    cdef readonly object log
    cdef list changed
    cdef bint noted
    cdef object read
    cdef list growing
    cdef readonly object highest
    cdef list marks
    cdef list others

    cpdef note(self)
    @cython.locals(segment=Segment)
    cpdef bint has_records(self)
    @cython.locals(segment=Segment)
    cpdef take(self, list changes)
    cpdef _records(self, Segment segment)
