from libc.stdint cimport uint8_t

from warren.pipeline.segments.columns cimport Column

cdef const char* type_name(uint8_t tag) noexcept nogil
cdef bint is_text(const uint8_t* p, Py_ssize_t size) noexcept nogil
cdef const uint8_t* write_plain(Column* out, const uint8_t* p) except NULL nogil
