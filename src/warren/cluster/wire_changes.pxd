# compiled: on the path of every batch

from warren.cluster.wire_values cimport Reader


cpdef pack_change(change)
cpdef bytes _before_change(tag, log)
cpdef bytes _before_records(change)
cpdef list pack_changes(changes)

cpdef read_change(Reader reader)
cpdef _read_records(log, Reader reader)
cpdef _read_marks(log, Reader reader)
