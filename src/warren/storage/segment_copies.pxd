# compiled: on the path of every batch

cdef class Copy:
    cdef readonly object base
    cdef readonly object epoch
    cdef public object length
    cdef public object last
    cdef public bint damaged
    cdef public object segment


cdef class SegmentCopies:
    cdef object log
    cdef public list all

    cpdef Copy at(self, base)
    cpdef Copy accept(self, records)
