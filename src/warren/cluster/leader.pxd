# compiled: on the path of every batch

from warren.cluster.beacons cimport Lease
from warren.cluster.session cimport Session
from warren.cluster.this_node cimport ThisNode


cdef class Leader:
    cdef public ThisNode node
    cdef public object shard
    cdef public object logs
    cdef public object record
    cdef public object epoch
    cdef public double begun_at
    cdef public long long index
    cdef public long long synced
    cdef public long long barrier
    cdef public long long commit
    cdef public long long told
    cdef public dict sessions
    cdef public dict _pages
    cdef public dict admitting
    cdef public object counted_out
    cdef public tuple others
    cdef public Lease lease
    cdef public dict backoffs
    cdef public object plan
    cdef public double planned_at
    cdef public object stopped_at
    cdef public bint gives_up
    cdef public object silent
    cdef public object handed_at
    cdef public object successor
    cdef public bint for_good

    cpdef append(self, changes, now)
    cpdef is_synced(self, index)
    cpdef ack(self, store, number, of_session, now)
    cpdef advance(self)
    cpdef _acked(self, store)
