from libc.stdint cimport int64_t, uint8_t

cpdef int64_t expiration_of(bytes properties) noexcept
cpdef uint8_t priority_of(bytes properties) noexcept
