# compiled: a start makes very many bindings (`benchmarks/start.py` watches this)

cdef class Binding:
    cdef readonly object source
    cdef readonly object destination
    cdef readonly object routing_key
    cdef readonly object arguments


cdef class Incoming:
    cdef dict by_source
