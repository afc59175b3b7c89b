# compiled: a start makes very many bindings

cdef class _Node:
    cdef readonly dict children
    cdef readonly dict bindings


cdef class Topic:
    cdef readonly _Node root
