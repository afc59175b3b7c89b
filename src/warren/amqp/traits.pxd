from libc.stdint cimport int64_t, uint8_t

cdef int64_t raw_expiration(const uint8_t* properties, Py_ssize_t length) noexcept nogil
cpdef int64_t expiration_of(bytes properties) noexcept
cpdef uint8_t priority_of(bytes properties) noexcept
cpdef bytes add_headers(bytes properties, bytes fields, bint drop_expiration)
cpdef bytes header_of(bytes properties, bytes name)
cdef Py_ssize_t value_size(const uint8_t* p, const uint8_t* end, int depth) noexcept nogil
cdef bint array_is_sound(const uint8_t* p, const uint8_t* end, int depth) noexcept nogil
cdef bint table_is_sound(const uint8_t* p, const uint8_t* end, int depth) noexcept nogil
