# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Headers as two columns of maps, one of texts and one of types, and x-death as a column of lists of structs.

The text of a string is the string, void is null, and only values of other types have an entry in the types:

    headers         {"kind": "order", "n": "5", "nothing": null, "nested": "{\"a\":[1]}"}
    header_types    {"n": "int64", "nested": "table"}

Both together describe a header exactly; `sink/headers.py` is the way back. A message with headers always has both
maps, though the second may be empty. Archives of earlier versions have only the first, with values in JSON.

The field tables must be sound (`traits.table_is_sound`). Any client can write x-death as it likes: entries that do
not have the type that the broker gives them become null.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, strlen

import pyarrow as pa

from warren.amqp.table import decode_table, encode_value
from warren.pipeline.segments.schema import DEATH, DEATHS, HEADERS, KEYS, TEXT, TIME

from warren.amqp.traits cimport value_size
from warren.amqp.wire cimport get16, get32, get64
from warren.pipeline.segments.columns cimport (
    Column, append_bytes, append_int64, append_null, append_text, close_cell, close_list, drop, start, take_cells,
    write_missing,
)
from warren.pipeline.segments.header_text cimport is_text, type_name, write_plain

cdef enum:
    MICROSECONDS = 1_000_000

cdef uint64_t SECONDS_MAX = 9_000_000_000_000  # later times do not fit an int64 of microseconds


# --- headers ---


cdef int start_headers(Headers* headers) except -1 nogil:
    start(&headers.maps, 0)
    start(&headers.names, 0)
    start(&headers.values, 0)
    start(&headers.type_maps, 0)
    start(&headers.type_names, 0)
    return start(&headers.types, 0)


cdef void drop_headers(Headers* headers) noexcept nogil:
    drop(&headers.maps)
    drop(&headers.names)
    drop(&headers.values)
    drop(&headers.type_maps)
    drop(&headers.type_names)
    drop(&headers.types)


cdef int append_no_headers(Headers* headers) except -1 nogil:
    append_null(&headers.maps)
    return append_null(&headers.type_maps)


cdef int append_headers(Headers* headers, const uint8_t* p, const uint8_t* end) except -1 nogil:
    """Append both maps of a message, from the fields between `p` and `end`."""
    cdef Py_ssize_t first = headers.names.count, first_type = headers.types.count
    cdef const uint8_t* begin = p
    while p < end:
        append_text(&headers.names, p + 1, p[0])
        if is_there(&headers.names, first):
            return append_as_dict(headers, first, first_type, begin, end)
        p = append_value(headers, p + 1, p[0], p + 1 + p[0])
    return close_maps(headers)


cdef int close_maps(Headers* headers) except -1 nogil:
    close_list(&headers.maps, headers.names.count)
    return close_list(&headers.type_maps, headers.types.count)


cdef const uint8_t* append_value(
    Headers* headers, const uint8_t* name, Py_ssize_t name_size, const uint8_t* value
) except NULL nogil:
    """Append the field's text and, if it needs one, its type; returns where the value ends."""
    cdef uint8_t tag = value[0]
    cdef Py_ssize_t size
    cdef const char* kind
    if tag == c"V":
        append_null(&headers.values)
        return value + 1
    if tag == c"S":
        size = get32(value + 1)
        if is_text(value + 5, size):
            append_bytes(&headers.values, value + 5, size)
            return value + 5 + size
    value = write_plain(&headers.values, value)
    close_cell(&headers.values)
    append_text(&headers.type_names, name, name_size)
    kind = type_name(tag)
    append_bytes(&headers.types, <const uint8_t*>kind, strlen(kind))
    return value


cdef bint is_there(const Column* names, Py_ssize_t first) noexcept nogil:
    """Whether one of the cells from `first` on is the same as the last cell."""
    cdef const int32_t* ends = names.ends
    cdef Py_ssize_t last = names.count - 1, i
    cdef int32_t size = ends[last + 1] - ends[last]
    for i in range(first, last):
        if ends[i + 1] - ends[i] == size and memcmp(names.data + ends[i], names.data + ends[last], size) == 0:
            return True
    return False


cdef int append_as_dict(
    Headers* headers, Py_ssize_t first, Py_ssize_t first_type, const uint8_t* p, const uint8_t* end
) except -1 with gil:
    """Begin this message's maps again with each name once: the last field of a name counts, as in the broker."""
    raw = p[:end - p]
    table, _ = decode_table((<uint32_t>len(raw)).to_bytes(4, "big") + raw)
    shown = {readable(name): value for name, value in table.items()}
    truncate(&headers.names, first)
    truncate(&headers.values, first)
    truncate(&headers.type_names, first_type)
    truncate(&headers.types, first_type)
    for name, value in shown.items():
        append_pair(headers, name, encode_value(value))
    return close_maps(headers)


cdef bytes readable(str name):
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


cdef int append_pair(Headers* headers, bytes name, bytes value) except -1:
    cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(name)
    append_text(&headers.names, text, PyBytes_GET_SIZE(name))
    append_value(headers, text, PyBytes_GET_SIZE(name), <const uint8_t*>PyBytes_AS_STRING(value))
    return 0


cdef int truncate(Column* column, Py_ssize_t count) except -1 nogil:
    """Drop all but the first `count` cells."""
    cdef Py_ssize_t i
    if column.missing:
        write_missing(column)
    if column.valid != NULL:
        for i in range(count, column.count):
            column.nulls -= not column.valid[i >> 3] >> (i & 7) & 1
            column.valid[i >> 3] &= ~(1 << (i & 7))
    column.count = count
    column.size = column.ends[count]
    return 0


cdef object take_headers(Headers* headers):
    """The column of texts, and the column of types."""
    texts = take_map(&headers.maps, &headers.names, &headers.values)
    return texts, take_map(&headers.type_maps, &headers.type_names, &headers.types)


cdef object take_map(Column* maps, Column* names, Column* values):
    entries = pa.StructArray.from_arrays(
        [take_cells(names, HEADERS.key_type), take_cells(values, HEADERS.item_type)],
        fields=[HEADERS.key_field, HEADERS.item_field],
    )
    return take_cells(maps, HEADERS, [entries])


# --- x-death ---


cdef int start_deaths(Deaths* deaths) except -1 nogil:
    start(&deaths.lists, 0)
    start(&deaths.counts, 8)
    start(&deaths.exchanges, 0)
    start(&deaths.queues, 0)
    start(&deaths.reasons, 0)
    start(&deaths.key_lists, 0)
    start(&deaths.keys, 0)
    start(&deaths.times, 8)
    return start(&deaths.expirations, 0)


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
    return append_null(&deaths.lists)


cdef int append_deaths(Deaths* deaths, const uint8_t* p, const uint8_t* end) except -1 nogil:
    """Append the deaths in a message's headers; null if they have no x-death that is an array."""
    cdef const uint8_t* found = find_field(p, end, b"x-death", 7)
    if found == NULL or found[0] != c"A":
        return append_no_deaths(deaths)
    end = found + 5 + get32(found + 1)
    p = found + 5
    while p < end:
        if p[0] == c"F":
            append_death(deaths, p + 5, p + 5 + get32(p + 1))
        p += value_size(p, end, 0)
    return close_list(&deaths.lists, deaths.counts.count + deaths.counts.missing)


cdef const uint8_t* find_field(
    const uint8_t* p, const uint8_t* end, const char* name, Py_ssize_t size
) noexcept nogil:
    """The value of the last field with this name; NULL if there is none."""
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
    return append_null(column)


cdef int append_time(Column* column, const uint8_t* value) except -1 nogil:
    if value == NULL or value[0] != c"T" or get64(value + 1) > SECONDS_MAX:
        return append_null(column)
    return append_int64(column, <int64_t>get64(value + 1) * MICROSECONDS)


cdef int append_keys(Deaths* deaths, const uint8_t* value) except -1 nogil:
    cdef const uint8_t* end
    if value == NULL or value[0] != c"A":
        return append_null(&deaths.key_lists)
    end = value + 5 + get32(value + 1)
    value += 5
    while value < end:
        append_string(&deaths.keys, value)
        value += value_size(value, end, 0)
    return close_list(&deaths.key_lists, deaths.keys.count + deaths.keys.missing)


cdef object take_deaths(Deaths* deaths):
    keys = take_cells(&deaths.keys, KEYS.value_type)
    cells = {
        "count": take_cells(&deaths.counts, DEATH.field("count").type),
        "exchange": take_cells(&deaths.exchanges, TEXT),
        "queue": take_cells(&deaths.queues, TEXT),
        "reason": take_cells(&deaths.reasons, TEXT),
        "routing_keys": take_cells(&deaths.key_lists, KEYS, [keys]),
        "time": take_cells(&deaths.times, TIME),
        "original_expiration": take_cells(&deaths.expirations, TEXT),
    }
    entries = pa.StructArray.from_arrays([cells[field.name] for field in DEATH], fields=list(DEATH))
    return take_cells(&deaths.lists, DEATHS, [entries])
