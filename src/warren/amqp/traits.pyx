# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads and changes single properties in the raw bytes, without decoding the others.

The properties must be sound, as all are that `ContentReader` has let through. Only `expiration_of`,
`raw_expiration` and `priority_of` also cope with bytes from a disk, which may be damaged.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from warren.amqp.table import DEPTH_MAX as PY_DEPTH_MAX

from warren.amqp.wire cimport get16, get32, put16, put32

cdef enum:
    HEADERS = 13          # which bit of the flags stands for this property; 15 stands for the first one
    DELIVERY_MODE = 12
    PRIORITY = 11
    EXPIRATION = 8
    DIGITS_MAX = 18

cdef int DEPTH_MAX = PY_DEPTH_MAX


cdef Py_ssize_t value_size(const uint8_t* p, const uint8_t* end, int depth) noexcept nogil:
    """How many bytes the field value at `p` takes, its type included; -1 if it is malformed."""
    cdef uint8_t tag
    cdef Py_ssize_t size
    if p >= end or depth > DEPTH_MAX:
        return -1
    tag = p[0]
    if tag == c"t" or tag == c"b" or tag == c"B":
        size = 2
    elif tag == c"s" or tag == c"u":
        size = 3
    elif tag == c"I" or tag == c"i" or tag == c"f":
        size = 5
    elif tag == c"l" or tag == c"L" or tag == c"d" or tag == c"T":
        size = 9
    elif tag == c"D":
        size = 6
    elif tag == c"V":
        size = 1
    elif tag == c"S" or tag == c"x" or tag == c"F" or tag == c"A":
        if end - p < 5:
            return -1
        size = 5 + <Py_ssize_t>get32(p + 1)
        if size > end - p:
            return -1
        if tag == c"F" and not table_is_sound(p + 5, p + size, depth + 1):
            return -1
        if tag == c"A" and not array_is_sound(p + 5, p + size, depth + 1):
            return -1
    else:
        return -1
    return size if size <= end - p else -1


cdef bint array_is_sound(const uint8_t* p, const uint8_t* end, int depth) noexcept nogil:
    cdef Py_ssize_t size
    while p < end:
        size = value_size(p, end, depth)
        if size < 0:
            return False
        p += size
    return True


cdef bint table_is_sound(const uint8_t* p, const uint8_t* end, int depth) noexcept nogil:
    cdef Py_ssize_t size
    while p < end:
        p += 1 + p[0]
        size = value_size(p, end, depth)
        if size < 0:
            return False
        p += size
    return True


cdef const uint8_t* find(const uint8_t* p, const uint8_t* end, uint16_t flags, int wanted) noexcept nogil:
    """Where the value of a property begins that is present; `end` if the bytes before it are damaged."""
    cdef int bit
    p += 2
    for bit in range(15, wanted, -1):
        if not flags & (1 << bit):
            continue
        if end - p < 4 and (bit == HEADERS or p >= end):
            return end
        if bit == HEADERS:
            p += 4 + <Py_ssize_t>get32(p)
        elif bit == DELIVERY_MODE or bit == PRIORITY:
            p += 1
        else:
            p += 1 + p[0]
    return min(p, end)


cpdef int64_t expiration_of(bytes properties) noexcept:
    """The expiration in milliseconds; -1 if there is none."""
    return raw_expiration(<const uint8_t*>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))


cdef int64_t raw_expiration(const uint8_t* properties, Py_ssize_t length) noexcept nogil:
    cdef const uint8_t* p
    cdef int64_t result = 0
    cdef int i, size
    if length < 2 or not get16(properties) & (1 << EXPIRATION):
        return -1
    p = find(properties, properties + length, get16(properties), EXPIRATION)
    size = p[0] if p < properties + length else 0
    if size == 0 or size > DIGITS_MAX or p + size >= properties + length:
        return -1
    for i in range(1, size + 1):
        if p[i] < 48 or p[i] > 57:
            return -1
        result = result * 10 + (p[i] - 48)
    return result


cpdef uint8_t priority_of(bytes properties) noexcept:
    """The priority; 0 if there is none."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(properties)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(properties)
    cdef const uint8_t* p
    if end - start < 2 or not get16(start) & (1 << PRIORITY):
        return 0
    p = find(start, end, get16(start), PRIORITY)
    return p[0] if p < end else 0


cpdef bytes add_headers(bytes properties, bytes fields, bint drop_expiration):
    """The properties with these encoded fields behind their headers and, if asked for, without expiration."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(properties)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(properties)
    cdef uint16_t flags = get16(start)
    cdef const uint8_t* headers = find(start, end, flags, HEADERS)
    cdef const uint8_t* rest = headers
    cdef const uint8_t* expiration
    cdef uint32_t size = 0
    cdef bytes result
    cdef uint8_t* p
    if flags & (1 << HEADERS):
        size = get32(headers)
        rest = headers + 4 + size
    drop_expiration = drop_expiration and flags & (1 << EXPIRATION)
    expiration = find(start, end, flags, EXPIRATION) if drop_expiration else end
    result = PyBytes_FromStringAndSize(
        NULL,
        (headers - start) + 4 + size + PyBytes_GET_SIZE(fields) + (end - rest)
        - (1 + expiration[0] if drop_expiration else 0),
    )
    p = <uint8_t*>PyBytes_AS_STRING(result)
    memcpy(p, start, headers - start)
    put16(p, (flags | (1 << HEADERS)) & ~(1 << EXPIRATION) if drop_expiration else flags | (1 << HEADERS))
    p += headers - start
    put32(p, size + <uint32_t>PyBytes_GET_SIZE(fields))
    p += 4
    if size:
        memcpy(p, headers + 4, size)
        p += size
    memcpy(p, PyBytes_AS_STRING(fields), PyBytes_GET_SIZE(fields))
    p += PyBytes_GET_SIZE(fields)
    memcpy(p, rest, expiration - rest)
    p += expiration - rest
    if drop_expiration:
        expiration += 1 + expiration[0]
        memcpy(p, expiration, end - expiration)
    return result


cpdef bytes header_of(bytes properties, bytes name):
    """The encoded value of a header, with its type in front; None if there is no such header."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(properties)
    cdef uint16_t flags = get16(p)
    cdef const uint8_t* end
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name), length
    if not flags & (1 << HEADERS):
        return None
    p = find(p, p + PyBytes_GET_SIZE(properties), flags, HEADERS)
    end = p + 4 + get32(p)
    p += 4
    while p < end:
        length = p[0]
        p += 1 + length
        if length == size and memcmp(p - length, PyBytes_AS_STRING(name), size) == 0:
            return PyBytes_FromStringAndSize(<char*>p, value_size(p, end, 1))
        p += value_size(p, end, 1)
    return None
