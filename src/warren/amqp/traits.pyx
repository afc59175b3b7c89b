# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The two properties that queues act upon, found in the raw properties without decoding the rest.

The properties must be sound, as those are that the reader has let through.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t

from warren.amqp.wire cimport get16, get32

cdef enum:
    HEADERS = 13          # bits of the flags; the highest, 15, is that of the first property
    DELIVERY_MODE = 12
    PRIORITY = 11
    EXPIRATION = 8
    DIGITS_MAX = 18


cdef const uint8_t* find(const uint8_t* p, uint16_t flags, int wanted) noexcept:
    """Where the value of a property that is present begins."""
    cdef int bit
    p += 2
    for bit in range(15, wanted, -1):
        if not flags & (1 << bit):
            continue
        if bit == HEADERS:
            p += 4 + get32(p)
        elif bit == DELIVERY_MODE or bit == PRIORITY:
            p += 1
        else:
            p += 1 + p[0]
    return p


cpdef int64_t expiration_of(bytes properties) noexcept:
    """In milliseconds; -1 if there is none."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(properties)
    cdef uint16_t flags = get16(p)
    cdef int64_t result = 0
    cdef int i, size
    if not flags & (1 << EXPIRATION):
        return -1
    p = find(p, flags, EXPIRATION)
    size = p[0]
    if size == 0 or size > DIGITS_MAX:
        return -1
    for i in range(1, size + 1):
        if p[i] < 48 or p[i] > 57:
            return -1
        result = result * 10 + (p[i] - 48)
    return result


cpdef uint8_t priority_of(bytes properties) noexcept:
    """0 if there is none."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(properties)
    cdef uint16_t flags = get16(p)
    return find(p, flags, PRIORITY)[0] if flags & (1 << PRIORITY) else 0
