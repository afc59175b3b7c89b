# compiled: on the path of every batch

cimport cython

from warren.cluster.wire_changes cimport read_change
from warren.cluster.wire_values cimport Reader


@cython.locals(reader=Reader)
cpdef decode(bytes data, Py_ssize_t at=*, end=*)
cpdef _decode_batch(Reader reader, head)
cpdef list encode_batch(batch, changes)


cdef class FrameSplitter:
    cdef readonly list chunks
    cdef Py_ssize_t missing
    cdef Py_ssize_t largest

    cpdef list feed(self, bytes data)
