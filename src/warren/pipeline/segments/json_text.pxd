from libc.stdint cimport uint8_t

from warren.pipeline.segments.columns cimport Column

cdef const uint8_t* write_value(Column* out, const uint8_t* p) except NULL nogil
