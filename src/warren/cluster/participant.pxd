# compiled: on the path of every batch

from warren.cluster.this_node cimport ThisNode


cdef class Participant:
    cdef readonly ThisNode node
    cdef public dict shards
    cdef public double beacon_at
    cdef public object on_error

    cpdef take_effects(self)
    cpdef received(self, sender, message, now)
    cpdef _for_shard(self, sender, message, now)
