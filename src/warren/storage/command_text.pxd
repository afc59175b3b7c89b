# compiled: a start reads very many commands

cdef class _Shape:
    cdef object made
    cdef dict kinds
    cdef set required
    cdef dict factories
    cdef bint is_bare
    cdef list parts

    cdef _make(self, dict values)
