# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A field value of AMQP as JSON text, written straight into a column.

    what JSON has itself    "text"   5   true   1.5   null   [1,2]   {"name":"value"}
    integers of any width   5                       times        seconds since 1970: 1700000000
    decimals                1.50                    not finite   "NaN"   "Infinity"   "-Infinity"
    bytes that are no text  {"!bytes":"ff00"}       byte arrays  {"!bytearray":"ff00"}

The marks are those of `storage/table_text.py`, so that they can be read back. Widths of integers are not
kept: who asks SQL of a header wants a number.

The value must be sound (`traits.value_size`): nothing is checked here a second time.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from math import isfinite, isnan

from warren.amqp.table import decode_value

from warren.amqp.wire cimport get16, get32, get64
from warren.pipeline.segments.columns cimport Column, is_ascii, room

cdef enum:
    NUMBER_BYTES_MAX = 20  # of a uint64, or of an int64 with its sign
    ESCAPED_BYTES_MAX = 6  # of one character: \u0000

cdef const char* HEX = "0123456789abcdef"


cdef const uint8_t* write_value(Column* out, const uint8_t* p) except NULL nogil:
    """Where the value ends."""
    cdef uint8_t tag = p[0]
    if tag == c"S":
        return write_long_string(out, p)
    if tag == c"t":
        return write_literal(out, b"true", 4, p + 2) if p[1] else write_literal(out, b"false", 5, p + 2)
    if tag == c"V":
        return write_literal(out, b"null", 4, p + 1)
    if tag == c"F":
        return write_table(out, p)
    if tag == c"A":
        return write_array(out, p)
    if tag == c"d" or tag == c"f" or tag == c"D":
        return write_by_python(out, p)
    if tag == c"x":
        return write_hex(out, b"{\"!bytearray\":\"", 15, p)
    return write_integer(out, p)


cdef const uint8_t* write_integer(Column* out, const uint8_t* p) except NULL nogil:
    cdef uint8_t tag = p[0]
    if tag == c"I":
        write_number(out, <int32_t>get32(p + 1))
        return p + 5
    if tag == c"i":
        write_number(out, get32(p + 1))
        return p + 5
    if tag == c"l" or tag == c"L":
        write_number(out, <int64_t>get64(p + 1))
        return p + 9
    if tag == c"T":
        write_digits(out, get64(p + 1), False)
        return p + 9
    if tag == c"s":
        write_number(out, <int16_t>get16(p + 1))
        return p + 3
    if tag == c"u":
        write_number(out, get16(p + 1))
        return p + 3
    write_number(out, p[1] if tag == c"B" else <int8_t>p[1])
    return p + 2


cdef int write_number(Column* out, int64_t value) except -1 nogil:
    if value < 0:
        return write_digits(out, <uint64_t>0 - <uint64_t>value, True)
    return write_digits(out, <uint64_t>value, False)


cdef int write_digits(Column* out, uint64_t value, bint negative) except -1 nogil:
    cdef uint8_t text[NUMBER_BYTES_MAX]
    cdef uint8_t* at = text + NUMBER_BYTES_MAX
    while True:
        at -= 1
        at[0] = <uint8_t>(48 + value % 10)
        value //= 10
        if value == 0:
            break
    if negative:
        at -= 1
        at[0] = c"-"
    return put(out, at, text + NUMBER_BYTES_MAX - at)


cdef int put(Column* out, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    memcpy(room(out, size), p, size)
    out.size += size
    return 0


cdef int put_one(Column* out, uint8_t character) except -1 nogil:
    room(out, 1)[0] = character
    out.size += 1
    return 0


cdef const uint8_t* write_literal(
    Column* out, const char* text, Py_ssize_t size, const uint8_t* then
) except NULL nogil:
    put(out, <const uint8_t*>text, size)
    return then


# --- text ---


cdef const uint8_t* write_long_string(Column* out, const uint8_t* p) except NULL nogil:
    cdef Py_ssize_t size = get32(p + 1)
    if is_ascii(p + 5, size) or is_utf8(p + 5, size):
        write_string(out, p + 5, size)
        return p + 5 + size
    return write_hex(out, b"{\"!bytes\":\"", 11, p)


cdef bint is_utf8(const uint8_t* p, Py_ssize_t size) noexcept with gil:
    try:
        p[:size].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


cdef int write_string(Column* out, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    """Of text in UTF-8, which stays as it is but for what JSON wants escaped."""
    cdef uint8_t* at = room(out, size * ESCAPED_BYTES_MAX + 2)
    cdef uint8_t* begin = at
    cdef const uint8_t* end = p + size
    at[0] = c'"'
    at += 1
    while p < end:
        if p[0] >= 0x20 and p[0] != c'"' and p[0] != c"\\":
            at[0] = p[0]
            at += 1
        else:
            at = escape(at, p[0])
        p += 1
    at[0] = c'"'
    out.size += at + 1 - begin
    return 0


cdef uint8_t* escape(uint8_t* at, uint8_t character) noexcept nogil:
    cdef uint8_t short = 0
    if character == c'"' or character == c"\\":
        short = character
    elif character == c"\n":
        short = c"n"
    elif character == c"\r":
        short = c"r"
    elif character == c"\t":
        short = c"t"
    elif character == 8:
        short = c"b"
    elif character == 12:
        short = c"f"
    at[0] = c"\\"
    if short:
        at[1] = short
        return at + 2
    at[1], at[2], at[3] = c"u", c"0", c"0"
    at[4] = HEX[character >> 4]
    at[5] = HEX[character & 15]
    return at + ESCAPED_BYTES_MAX


cdef const uint8_t* write_hex(
    Column* out, const char* mark, Py_ssize_t mark_size, const uint8_t* p
) except NULL nogil:
    """The bytes of a long string or byte array, under a mark that says what they are."""
    cdef Py_ssize_t size = get32(p + 1), i
    cdef uint8_t* at
    put(out, <const uint8_t*>mark, mark_size)
    at = room(out, 2 * size + 2)
    for i in range(size):
        at[2 * i] = HEX[p[5 + i] >> 4]
        at[2 * i + 1] = HEX[p[5 + i] & 15]
    at[2 * size], at[2 * size + 1] = c'"', c"}"
    out.size += 2 * size + 2
    return p + 5 + size


# --- what holds others ---


cdef const uint8_t* write_table(Column* out, const uint8_t* p) except NULL nogil:
    cdef const uint8_t* end = p + 5 + get32(p + 1)
    cdef bint first = True
    p += 5
    put_one(out, c"{")
    while p < end:
        if not first:
            put_one(out, c",")
        first = False
        write_name(out, p + 1, p[0])
        put_one(out, c":")
        p = write_value(out, p + 1 + p[0])
    put_one(out, c"}")
    return end


cdef int write_name(Column* out, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    if is_ascii(p, size):
        return write_string(out, p, size)
    return write_odd_name(out, p, size)


cdef int write_odd_name(Column* out, const uint8_t* p, Py_ssize_t size) except -1 with gil:
    text = p[:size].decode("utf-8", "replace").encode()
    return write_string(out, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef const uint8_t* write_array(Column* out, const uint8_t* p) except NULL nogil:
    cdef const uint8_t* end = p + 5 + get32(p + 1)
    cdef bint first = True
    p += 5
    put_one(out, c"[")
    while p < end:
        if not first:
            put_one(out, c",")
        first = False
        p = write_value(out, p)
    put_one(out, c"]")
    return end


# --- the rare ones ---


cdef const uint8_t* write_by_python(Column* out, const uint8_t* p) except NULL with gil:
    """Floats and decimals: Python finds the shortest text that means the same."""
    cdef Py_ssize_t size = 9 if p[0] == c"d" else 5 if p[0] == c"f" else 6
    text = number_text(decode_value(p[:size])).encode()
    put(out, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return p + size


cdef str number_text(object value):
    if isinstance(value, float):
        if isnan(value):
            return '"NaN"'
        if not isfinite(value):
            return '"Infinity"' if value > 0 else '"-Infinity"'
        return float.__repr__(value)
    return str(value)
