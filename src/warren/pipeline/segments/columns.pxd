"""The functions of columns that run for every cell: they are here so that C inlines them. See columns.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef struct Column:
    uint8_t* data            # values of a fixed width, or the bytes of all cells
    Py_ssize_t size          # how many bytes of `data` are used
    Py_ssize_t capacity      # of `data`, in bytes
    int32_t* ends            # where each cell begins, and the last one ends; NULL for a fixed width
    Py_ssize_t ends_capacity  # in bytes
    uint8_t* valid           # a bit for each cell, 0 for a null; NULL while no null is written
    Py_ssize_t valid_capacity  # in bytes
    Py_ssize_t count         # cells written so far, nulls included
    Py_ssize_t missing       # nulls behind those cells that are only counted yet
    Py_ssize_t nulls         # all nulls, written or only counted
    Py_ssize_t width         # bytes of a cell if all cells have the same width, else 0


cdef int start(Column* column, Py_ssize_t width) except -1 nogil
cdef void drop(Column* column) noexcept nogil
cdef int grow(void** block, Py_ssize_t* capacity, Py_ssize_t needed) except -1 nogil
cdef int make_room(Column* column, Py_ssize_t size) except -1 nogil
cdef int write_missing(Column* column) except -1 nogil
cdef int append_odd_text(Column* column, const uint8_t* p, Py_ssize_t size) except -1 with gil
cdef object take_cells(Column* column, object kind, list children=?)


cdef inline uint8_t* room(Column* column, Py_ssize_t size) except NULL nogil:
    """Where the next `size` bytes can be written. The caller adds what it wrote to `column.size`."""
    if column.size + size > column.capacity:
        make_room(column, size)
    return column.data + column.size


cdef inline int count_present(Column* column) except -1 nogil:
    if column.missing:
        write_missing(column)
    if column.valid != NULL and column.count >> 3 >= column.valid_capacity:
        grow(<void**>&column.valid, &column.valid_capacity, (column.count >> 3) + 1)
    if column.valid != NULL:
        column.valid[column.count >> 3] |= 1 << (column.count & 7)
    column.count += 1
    return 0


cdef inline int append_null(Column* column) except -1 nogil:
    column.missing += 1
    column.nulls += 1
    return 0


cdef inline int close_list(Column* column, Py_ssize_t children) except -1 nogil:
    """End a list's cell: it ends where the child columns have `children` cells."""
    count_present(column)
    if (column.count + 1) * <Py_ssize_t>sizeof(int32_t) > column.ends_capacity:
        grow(<void**>&column.ends, &column.ends_capacity, (column.count + 1) * sizeof(int32_t))
    column.ends[column.count] = <int32_t>children
    return 0


cdef inline int close_cell(Column* column) except -1 nogil:
    """End a cell: it has the bytes that were written since the last one ended."""
    return close_list(column, column.size)


cdef inline int append_bytes(Column* column, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    memcpy(room(column, size), p, size)
    column.size += size
    return close_cell(column)


cdef inline bint is_ascii(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word, all_words = 0
    cdef uint8_t all_bytes = 0
    while size >= 8:
        memcpy(&word, p, 8)
        all_words |= word
        p += 8
        size -= 8
    while size > 0:
        all_bytes |= p[0]
        p += 1
        size -= 1
    return not (all_words & <uint64_t>0x8080808080808080 or all_bytes & 0x80)


cdef inline int append_text(Column* column, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    if is_ascii(p, size):
        return append_bytes(column, p, size)
    return append_odd_text(column, p, size)


cdef inline int append_int64(Column* column, int64_t value) except -1 nogil:
    count_present(column)
    (<int64_t*>room(column, 8))[0] = value
    column.size += 8
    return 0


cdef inline int append_int32(Column* column, int32_t value) except -1 nogil:
    count_present(column)
    (<int32_t*>room(column, 4))[0] = value
    column.size += 4
    return 0
