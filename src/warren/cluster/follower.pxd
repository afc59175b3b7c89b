# compiled: on the path of every batch

from warren.cluster.beacons cimport Patience
from warren.cluster.this_node cimport ThisNode


cdef class Follower:
    cdef public ThisNode node
    cdef public object shard
    cdef public object clearing
    cdef public object epoch
    cdef public object leader
    cdef public object session
    cdef public long long applied
    cdef public bint was_in_step
    cdef public double active_at
    cdef public double not_before
    cdef public object unsynced
    cdef public bint is_whole
    cdef public bint is_noted
    cdef public object note_token
    cdef public object repair_token
    cdef public Patience patience

    cpdef batch(self, sender, batch, now)
    cpdef synced(self, token)
