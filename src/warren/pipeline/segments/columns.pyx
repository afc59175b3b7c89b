# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Arrow columns that grow, filled without the interpreter's lock.

Three kinds share one struct: cells of a fixed width, cells cut out of one run of bytes (text, binary), and lists,
whose `ends` count the cells of other columns instead of bytes. `take_buffers` hands the memory to Arrow as it
is: nothing is copied a second time.

Text in Arrow is UTF-8, while AMQP's names may be any bytes: what is none is replaced by U+FFFD.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

import pyarrow as pa

cdef enum:
    CAPACITY_MIN = 1024
    CELLS_BYTES_MAX = 0x7FFFFFFF  # what an offset of Arrow's plain binary can say
    NOT_ASCII = 0x80

cdef uint64_t NOT_ASCII_WORD = 0x8080808080808080


cdef class Memory:
    """A block that was allocated by malloc, freed with the last array that uses it."""

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef object as_buffer(uint8_t* data, Py_ssize_t size):
    """Arrow's view of a block, which is theirs from now on."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = data
    memory.size = size
    return pa.py_buffer(memory)


# --- growing ---


cdef int grow(void** block, Py_ssize_t* capacity, Py_ssize_t needed) except -1 nogil:
    cdef Py_ssize_t wanted = max(needed, max(capacity[0] * 2, CAPACITY_MIN))
    cdef void* moved = realloc(block[0], wanted)
    if moved == NULL:
        with gil:
            raise MemoryError
    block[0] = moved
    capacity[0] = wanted
    return 0


cdef int start(Column* column, bint cut) except -1 nogil:
    """An empty column; `cut`: its cells are of any size."""
    memset(column, 0, sizeof(Column))
    grow(<void**>&column.data, &column.capacity, CAPACITY_MIN)
    if cut:
        grow(<void**>&column.ends, &column.ends_capacity, CAPACITY_MIN)
        column.ends[0] = 0
    return 0


cdef void drop(Column* column) noexcept nogil:
    free(column.data)
    free(column.ends)
    free(column.valid)
    memset(column, 0, sizeof(Column))


cdef uint8_t* room(Column* column, Py_ssize_t size) except NULL nogil:
    """Where so many bytes more can be written; `size` of the column is the caller's to move."""
    if column.size + size > column.capacity:
        if column.size + size > CELLS_BYTES_MAX:
            with gil:
                raise OverflowError("the cells of one batch take more than 2 GiB")
        grow(<void**>&column.data, &column.capacity, column.size + size)
    return column.data + column.size


cdef int note(Column* column, bint present) except -1 nogil:
    """Whether the cell that is being closed is null. The bits are made when the first one is."""
    cdef Py_ssize_t at = column.count >> 3, before = column.valid_capacity
    column.count += 1
    if present and column.valid == NULL:
        return 0
    if at >= before:
        grow(<void**>&column.valid, &column.valid_capacity, at + 1)
        memset(column.valid + before, 0xFF, column.valid_capacity - before)
    if not present:
        column.valid[at] &= ~(1 << ((column.count - 1) & 7))
        column.nulls += 1
    return 0


# --- cells ---


cdef int close_list(Column* column, Py_ssize_t children, bint present) except -1 nogil:
    """A cell ends where the child columns have so many cells."""
    note(column, present)
    if (column.count + 1) * <Py_ssize_t>sizeof(int32_t) > column.ends_capacity:
        grow(<void**>&column.ends, &column.ends_capacity, (column.count + 1) * sizeof(int32_t))
    column.ends[column.count] = <int32_t>children
    return 0


cdef int close_cell(Column* column, bint present) except -1 nogil:
    """A cell ends here: what was written since the last one is in it."""
    return close_list(column, column.size, present)


cdef int append_bytes(Column* column, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    memcpy(room(column, size), p, size)
    column.size += size
    return close_cell(column, True)


cdef int append_text(Column* column, const uint8_t* p, Py_ssize_t size) except -1 nogil:
    if is_ascii(p, size):
        return append_bytes(column, p, size)
    return append_odd_text(column, p, size)


cdef int append_odd_text(Column* column, const uint8_t* p, Py_ssize_t size) except -1 with gil:
    text = p[:size].decode("utf-8", "replace").encode()
    return append_bytes(column, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef int append_null(Column* column) except -1 nogil:
    return close_cell(column, False)


cdef int append_int64(Column* column, int64_t value) except -1 nogil:
    (<int64_t*>room(column, 8))[0] = value
    column.size += 8
    return note(column, True)


cdef int append_int32(Column* column, int32_t value) except -1 nogil:
    (<int32_t*>room(column, 4))[0] = value
    column.size += 4
    return note(column, True)


cdef int append_null_of(Column* column, Py_ssize_t width) except -1 nogil:
    memset(room(column, width), 0, width)
    column.size += width
    return note(column, False)


cdef bint is_ascii(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, p, 8)
        if word & NOT_ASCII_WORD:
            return False
        p += 8
        size -= 8
    while size > 0:
        if p[0] & NOT_ASCII:
            return False
        p += 1
        size -= 1
    return True


# --- handing over ---


cdef list take_buffers(Column* column):
    """What Arrow wants of a column: validity, then where cells end, if cut, then the data. The column is empty
    afterwards, as `start` makes it, but has room for as much as it had.
    """
    cdef bint cut = column.ends != NULL
    cdef Column full = column[0]
    start(column, cut)
    buffers = [None]
    if full.valid != NULL:
        if full.nulls:
            buffers[0] = as_buffer(full.valid, (full.count + 7) >> 3)
        else:
            free(full.valid)
    if cut:
        buffers.append(as_buffer(<uint8_t*>full.ends, (full.count + 1) * sizeof(int32_t)))
    buffers.append(as_buffer(full.data, full.size))
    grow(<void**>&column.data, &column.capacity, full.size)
    return buffers
