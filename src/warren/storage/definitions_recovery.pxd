# compiled: a start reads very many definitions

from warren.storage.checked_lines cimport Line
from warren.storage.definitions cimport Definitions


cdef class _Recovery:
    cdef Definitions definitions
    cdef list problems
    cdef set declared
    cdef list damaged
    cdef dict commands

    cdef _report_damaged(self)
    cdef _read(self, Line line)
    cdef _fold(self, Line line, dict content)
    cdef _report(self, Line line, reason)
