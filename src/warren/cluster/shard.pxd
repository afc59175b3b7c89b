# compiled: on the path of every batch

from warren.cluster.follower cimport Follower
from warren.cluster.leader cimport Leader
from warren.cluster.this_node cimport ThisNode


cdef class Shard:
    cdef public ThisNode node
    cdef public object number
    cdef public object logs
    cdef public object epoch
    cdef public object role
    cdef public object known
    cdef public Follower follower
    cdef public Leader leader
    cdef public object led_epoch
    cdef public object pending
    cdef public object take_back
    cdef public object stood_at
    cdef public object stood_against
    cdef public object dead
    cdef public object reads
    cdef public object has_failed
    cdef public double failed_at
    cdef public double quiet_until
    cdef public double preferred_asked_at

    cpdef batch(self, sender, message, now)
    cpdef ack(self, sender, ack, now)
    cpdef synced(self, token, now)
    cpdef index_synced(self, epoch, index, now)
    cpdef append(self, changes, now)
    cpdef review(self, now)
    cpdef tick(self, now)
