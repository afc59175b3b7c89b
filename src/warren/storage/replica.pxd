# compiled: on the path of every batch

cdef class Batch:
    cdef readonly object then
    cdef public Py_ssize_t left


cdef class Replica:
    cdef readonly object shard
    cdef readonly str path
    cdef object tools
    cdef readonly object on_mismatch
    cdef readonly dict logs
    cdef public dict before
    cdef readonly set removed
    cdef object batches
    cdef object done
