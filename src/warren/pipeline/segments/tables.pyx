# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Headers as a column of maps, and x-death as a column of lists of structs.

The field tables must be sound (`traits.table_is_sound`). In x-death, which any client can write as it likes, what
is not of the type that the broker gives it is null.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

import pyarrow as pa

from warren.amqp.table import decode_table, encode_value
from warren.pipeline.segments.schema import DEATH, DEATHS, HEADERS, KEYS

from warren.amqp.traits cimport value_size
from warren.amqp.wire cimport get16, get32, get64
from warren.pipeline.segments.columns cimport (
    Column, append_int64, append_null, append_null_of, append_text, close_cell, close_list, drop, start, take_buffers,
)
from warren.pipeline.segments.json_text cimport write_value

cdef enum:
    MICROSECONDS = 1_000_000

cdef uint64_t SECONDS_MAX = 9_000_000_000_000  # more are no int64 of microseconds


# --- headers ---


cdef int start_headers(Headers* headers) except -1 nogil:
    start(&headers.maps, True)
    start(&headers.names, True)
    return start(&headers.values, True)


cdef void drop_headers(Headers* headers) noexcept nogil:
    drop(&headers.maps)
    drop(&headers.names)
    drop(&headers.values)


cdef int append_no_headers(Headers* headers) except -1 nogil:
    return close_list(&headers.maps, headers.names.count, False)


cdef int append_headers(Headers* headers, const uint8_t* p, const uint8_t* end) except -1 nogil:
    """A map of the fields between `p` and `end`."""
    cdef Py_ssize_t first = headers.names.count
    cdef const uint8_t* begin = p
    while p < end:
        append_text(&headers.names, p + 1, p[0])
        if is_there(&headers.names, first):
            return append_as_dict(headers, first, begin, end)
        p = write_value(&headers.values, p + 1 + p[0])
        close_cell(&headers.values, True)
    return close_list(&headers.maps, headers.names.count, True)


cdef bint is_there(const Column* names, Py_ssize_t first) noexcept nogil:
    """Whether the last cell is the same as one of those from `first` on."""
    cdef const int32_t* ends = names.ends
    cdef Py_ssize_t last = names.count - 1, i
    cdef int32_t size = ends[last + 1] - ends[last]
    for i in range(first, last):
        if ends[i + 1] - ends[i] == size and memcmp(names.data + ends[i], names.data + ends[last], size) == 0:
            return True
    return False


cdef int append_as_dict(
    Headers* headers, Py_ssize_t first, const uint8_t* p, const uint8_t* end
) except -1 with gil:
    """The same if a name comes twice: the last one holds, as in the broker."""
    raw = p[:end - p]
    table, _ = decode_table((<uint32_t>len(raw)).to_bytes(4, "big") + raw)
    shown = {readable(name): value for name, value in table.items()}
    truncate(&headers.names, first)
    truncate(&headers.values, first)
    for name, value in shown.items():
        append_pair(headers, name, encode_value(value))
    return close_list(&headers.maps, headers.names.count, True)


cdef bytes readable(str name):
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


cdef int append_pair(Headers* headers, bytes name, bytes value) except -1:
    append_text(&headers.names, <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    write_value(&headers.values, <const uint8_t*>PyBytes_AS_STRING(value))
    return close_cell(&headers.values, True)


cdef void truncate(Column* column, Py_ssize_t count) noexcept nogil:
    """Back to so many cells, of a column without nulls."""
    column.count = count
    column.size = column.ends[count]


cdef object take_headers(Headers* headers):
    cdef Py_ssize_t pairs = headers.names.count, rows = headers.maps.count, nulls = headers.maps.nulls
    names = pa.Array.from_buffers(HEADERS.key_type, pairs, take_buffers(&headers.names))
    values = pa.Array.from_buffers(HEADERS.item_type, pairs, take_buffers(&headers.values))
    entries = pa.StructArray.from_arrays([names, values], fields=[HEADERS.key_field, HEADERS.item_field])
    return pa.Array.from_buffers(HEADERS, rows, take_buffers(&headers.maps)[:2], nulls, children=[entries])


# --- x-death ---


cdef int start_deaths(Deaths* deaths) except -1 nogil:
    start(&deaths.lists, True)
    start(&deaths.counts, False)
    start(&deaths.exchanges, True)
    start(&deaths.queues, True)
    start(&deaths.reasons, True)
    start(&deaths.key_lists, True)
    start(&deaths.keys, True)
    start(&deaths.times, False)
    return start(&deaths.expirations, True)


cdef void drop_deaths(Deaths* deaths) noexcept nogil:
    drop(&deaths.lists)
    drop(&deaths.counts)
    drop(&deaths.exchanges)
    drop(&deaths.queues)
    drop(&deaths.reasons)
    drop(&deaths.key_lists)
    drop(&deaths.keys)
    drop(&deaths.times)
    drop(&deaths.expirations)


cdef int append_no_deaths(Deaths* deaths) except -1 nogil:
    return close_list(&deaths.lists, deaths.counts.count, False)


cdef int append_deaths(Deaths* deaths, const uint8_t* p, const uint8_t* end) except -1 nogil:
    """Of headers; null if there is no x-death in them that is an array."""
    cdef const uint8_t* found = find_field(p, end, b"x-death", 7)
    if found == NULL or found[0] != c"A":
        return append_no_deaths(deaths)
    end = found + 5 + get32(found + 1)
    p = found + 5
    while p < end:
        if p[0] == c"F":
            append_death(deaths, p + 5, p + 5 + get32(p + 1))
        p += value_size(p, end, 0)
    return close_list(&deaths.lists, deaths.counts.count, True)


cdef const uint8_t* find_field(
    const uint8_t* p, const uint8_t* end, const char* name, Py_ssize_t size
) noexcept nogil:
    """The value of the last field of that name; NULL if there is none."""
    cdef const uint8_t* found = NULL
    cdef const uint8_t* value
    while p < end:
        value = p + 1 + p[0]
        if p[0] == size and memcmp(p + 1, name, size) == 0:
            found = value
        p = value + value_size(value, end, 0)
    return found


cdef int append_death(Deaths* deaths, const uint8_t* p, const uint8_t* end) except -1 nogil:
    append_count(&deaths.counts, find_field(p, end, b"count", 5))
    append_string(&deaths.exchanges, find_field(p, end, b"exchange", 8))
    append_string(&deaths.queues, find_field(p, end, b"queue", 5))
    append_string(&deaths.reasons, find_field(p, end, b"reason", 6))
    append_keys(deaths, find_field(p, end, b"routing-keys", 12))
    append_time(&deaths.times, find_field(p, end, b"time", 4))
    return append_string(&deaths.expirations, find_field(p, end, b"original-expiration", 19))


cdef int append_string(Column* column, const uint8_t* value) except -1 nogil:
    if value == NULL or value[0] != c"S":
        return append_null(column)
    return append_text(column, value + 5, get32(value + 1))


cdef int append_count(Column* column, const uint8_t* value) except -1 nogil:
    if value != NULL:
        if value[0] == c"l" or value[0] == c"L":
            return append_int64(column, <int64_t>get64(value + 1))
        if value[0] == c"I":
            return append_int64(column, <int32_t>get32(value + 1))
        if value[0] == c"i":
            return append_int64(column, get32(value + 1))
    return append_null_of(column, 8)


cdef int append_time(Column* column, const uint8_t* value) except -1 nogil:
    if value == NULL or value[0] != c"T" or get64(value + 1) > SECONDS_MAX:
        return append_null_of(column, 8)
    return append_int64(column, <int64_t>get64(value + 1) * MICROSECONDS)


cdef int append_keys(Deaths* deaths, const uint8_t* value) except -1 nogil:
    cdef const uint8_t* end
    if value == NULL or value[0] != c"A":
        return close_list(&deaths.key_lists, deaths.keys.count, False)
    end = value + 5 + get32(value + 1)
    value += 5
    while value < end:
        append_string(&deaths.keys, value)
        value += value_size(value, end, 0)
    return close_list(&deaths.key_lists, deaths.keys.count, True)


cdef object take_deaths(Deaths* deaths):
    cdef Py_ssize_t rows = deaths.lists.count, nulls = deaths.lists.nulls
    cells = {
        "count": take_cells(&deaths.counts, DEATH.field("count").type),
        "exchange": take_cells(&deaths.exchanges, pa.string()),
        "queue": take_cells(&deaths.queues, pa.string()),
        "reason": take_cells(&deaths.reasons, pa.string()),
        "routing_keys": take_keys(deaths),
        "time": take_cells(&deaths.times, DEATH.field("time").type),
        "original_expiration": take_cells(&deaths.expirations, pa.string()),
    }
    entries = pa.StructArray.from_arrays([cells[field.name] for field in DEATH], fields=list(DEATH))
    return pa.Array.from_buffers(DEATHS, rows, take_buffers(&deaths.lists)[:2], nulls, children=[entries])


cdef object take_cells(Column* column, object kind):
    cdef Py_ssize_t count = column.count, nulls = column.nulls
    return pa.Array.from_buffers(kind, count, take_buffers(column), nulls)


cdef object take_keys(Deaths* deaths):
    cdef Py_ssize_t count = deaths.key_lists.count, nulls = deaths.key_lists.nulls
    keys = take_cells(&deaths.keys, pa.string())
    return pa.Array.from_buffers(KEYS, count, take_buffers(&deaths.key_lists)[:2], nulls, children=[keys])
