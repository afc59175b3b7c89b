# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Writes a field value of AMQP as text, straight into a column; another column has its type.

    integers of any width   5                       times        seconds since 1970: 1700000000
    booleans                true                    decimals     1.50
    floats                  1.5  NaN  Infinity  -Infinity; an unusual NaN with its bits, NaN:7ff4000000000000
    bytes                   ff00, for byte arrays, and for strings that are no UTF-8
    tables, arrays          JSON: {"name":"value"}  [1,2]

Values inside tables and arrays carry their exact type themselves, by the marks of `storage/table_text.py`:
{"!int64":5}. Types that JSON has need no mark: "text", 5 (an int32), 1.5 (of double precision), true, null.

The value must be sound (`traits.value_size`): nothing is checked here a second time.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, strlen

import json
from math import isfinite, isnan, nan

from warren.amqp.table import DOUBLE, FLOAT, decode_value
from warren.storage.table_text import table_to_json

from warren.amqp.traits cimport value_size
from warren.amqp.wire cimport get16, get32, get64
from warren.pipeline.segments.columns cimport Column, is_ascii, room

cdef enum:
    NUMBER_BYTES_MAX = 20  # the digits of a uint64, or of an int64 with its sign
    ESCAPED_BYTES_MAX = 6  # one escaped character: \u0000

cdef frozenset USUAL_NANS = frozenset({DOUBLE.pack(nan), FLOAT.pack(nan)})
cdef const char* HEX = "0123456789abcdef"


cdef const char* type_name(uint8_t tag) noexcept nogil:
    """The name of a type. Void has none, nor has a string: one that is no UTF-8 is `bytes`."""
    if tag == c"I":
        return b"int32"
    if tag == c"l":
        return b"int64"
    if tag == c"t":
        return b"bool"
    if tag == c"d":
        return b"float"
    if tag == c"F":
        return b"table"
    if tag == c"A":
        return b"array"
    if tag == c"T":
        return b"timestamp"
    if tag == c"S":
        return b"bytes"
    return rare_type_name(tag)


cdef const char* rare_type_name(uint8_t tag) noexcept nogil:
    if tag == c"b":
        return b"int8"
    if tag == c"B":
        return b"uint8"
    if tag == c"s":
        return b"int16"
    if tag == c"u":
        return b"uint16"
    if tag == c"i":
        return b"uint32"
    if tag == c"L":
        return b"oldint64"
    if tag == c"f":
        return b"float32"
    return b"decimal" if tag == c"D" else b"bytearray"


cdef const uint8_t* write_plain(Column* out, const uint8_t* p) except NULL nogil:
    """Write a value whose type goes to another column; returns where the value ends."""
    cdef uint8_t tag = p[0]
    if tag == c"S" or tag == c"x":
        return write_hex(out, p)
    if tag == c"F":
        return write_table(out, p)
    if tag == c"d" or tag == c"f" or tag == c"D":
        return write_plain_by_python(out, p)
    if tag == c"t" or tag == c"A":
        return write_value(out, p)
    return write_integer(out, p)


cdef const uint8_t* write_value(Column* out, const uint8_t* p) except NULL nogil:
    """Write a value as JSON with its type, if that needs a mark; returns where the value ends."""
    cdef uint8_t tag = p[0]
    if tag == c"S":
        return write_long_string(out, p)
    if tag == c"t":
        return write_literal(out, b"true", 4, p + 2) if p[1] else write_literal(out, b"false", 5, p + 2)
    if tag == c"V":
        return write_literal(out, b"null", 4, p + 1)
    if tag == c"F":
        return write_inner_table(out, p)
    if tag == c"A":
        return write_array(out, p)
    if tag == c"d" or tag == c"f" or tag == c"D":
        return write_by_python(out, p)
    if tag == c"I":
        return write_integer(out, p)
    begin_mark(out, tag)
    if tag == c"x":
        p = write_quoted_hex(out, p)
    else:
        p = write_integer(out, p)
    put_one(out, c"}")
    return p


cdef int begin_mark(Column* out, uint8_t tag) except -1 nogil:
    cdef const char* name = type_name(tag)
    put(out, <const uint8_t*>b"{\"!", 3)
    put(out, <const uint8_t*>name, strlen(name))
    return put(out, <const uint8_t*>b"\":", 2)


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
    if tag == c"B":
        write_number(out, p[1])
    else:
        write_number(out, <int8_t>p[1])
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
    if is_text(p + 5, size):
        write_string(out, p + 5, size)
        return p + 5 + size
    begin_mark(out, p[0])
    p = write_quoted_hex(out, p)
    put_one(out, c"}")
    return p


cdef bint is_text(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    return is_ascii(p, size) or is_utf8(p, size)


cdef bint is_utf8(const uint8_t* p, Py_ssize_t size) noexcept with gil:
    try:
        p[:size].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


cdef int write_string(Column* out, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    """Write UTF-8 as a JSON string: only characters that JSON wants escaped are changed."""
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


cdef const uint8_t* write_quoted_hex(Column* out, const uint8_t* p) except NULL nogil:
    put_one(out, c'"')
    p = write_hex(out, p)
    put_one(out, c'"')
    return p


cdef const uint8_t* write_hex(Column* out, const uint8_t* p) except NULL nogil:
    """Write the bytes of a long string or byte array in hexadecimal."""
    cdef Py_ssize_t size = get32(p + 1), i
    cdef uint8_t* at = room(out, 2 * size)
    for i in range(size):
        at[2 * i] = HEX[p[5 + i] >> 4]
        at[2 * i + 1] = HEX[p[5 + i] & 15]
    out.size += 2 * size
    return p + 5 + size


# --- tables and arrays ---


cdef const uint8_t* write_inner_table(Column* out, const uint8_t* p) except NULL nogil:
    """Write a table within JSON. If its only field's name begins with `!`, it looks like a marked value: then the
    table gets a mark itself.
    """
    cdef const uint8_t* end = p + 5 + get32(p + 1)
    cdef const uint8_t* value = p + 6 + p[5]
    cdef bint looks_marked = p + 6 < end and p[5] and p[6] == c"!" and value + value_size(value, end, 0) == end
    if looks_marked:
        begin_mark(out, p[0])
    p = write_table(out, p)
    if looks_marked:
        put_one(out, c"}")
    return p


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


# --- floats and decimals ---


cdef const uint8_t* write_by_python(Column* out, const uint8_t* p) except NULL with gil:
    """Write a float or decimal within JSON."""
    cdef Py_ssize_t size = size_of_number(p)
    text = json.dumps(table_to_json({"": decode_value(p[:size])})[""], separators=(",", ":")).encode()
    put(out, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return p + size


cdef const uint8_t* write_plain_by_python(Column* out, const uint8_t* p) except NULL with gil:
    """Write a float or decimal: Python finds the shortest text for the same number."""
    cdef Py_ssize_t size = size_of_number(p)
    raw = p[:size]
    text = number_text(decode_value(raw), raw[1:]).encode()
    put(out, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return p + size


cdef Py_ssize_t size_of_number(const uint8_t* p) noexcept nogil:
    return 9 if p[0] == c"d" else 5 if p[0] == c"f" else 6


cdef str number_text(object value, bytes bits):
    if not isinstance(value, float):
        return str(value)
    if isnan(value):
        return "NaN" if bits in USUAL_NANS else f"NaN:{bits.hex()}"
    if not isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float.__repr__(value)
