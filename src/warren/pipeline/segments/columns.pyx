# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Arrow columns that grow, filled without the interpreter's lock.

Three kinds share one struct: cells of a fixed width, cells cut out of one run of bytes (text, binary), and lists,
whose `ends` count the cells of other columns instead of bytes. `take_cells` hands the memory to Arrow as it is:
nothing is copied a second time. Memory that Arrow has released is kept for the next batch: to get new memory from
the system costs more than to fill it.

A null is only counted until a cell follows it, so that columns of nulls only, as most are, cost next to nothing.
Text in Arrow is UTF-8, while AMQP's names may be any bytes: bytes that are no UTF-8 are replaced by U+FFFD.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import pyarrow as pa

cdef enum:
    CAPACITY_MIN = 4096
    CELLS_BYTES_MAX = 0x7FFFFFFF  # the highest offset in Arrow's plain binary type
    SPARES_MAX = 64               # blocks that are kept for reuse
    SPARE_BYTES_MAX = 64 << 20    # of all of them together


# --- memory ---


cdef struct Block:
    void* data
    Py_ssize_t capacity

cdef Block[SPARES_MAX] spares     # used only with the interpreter's lock held
cdef int spare_count = 0
cdef Py_ssize_t spare_bytes = 0


cdef void give_back(void* data, Py_ssize_t capacity) noexcept:
    global spare_count, spare_bytes
    if spare_count == SPARES_MAX or spare_bytes + capacity > SPARE_BYTES_MAX:
        free(data)
        return
    spares[spare_count].data, spares[spare_count].capacity = data, capacity
    spare_count += 1
    spare_bytes += capacity


cdef Block take_spare(Py_ssize_t like) noexcept:
    """The smallest kept block of at least this capacity; its data is NULL if there is none."""
    global spare_count, spare_bytes
    cdef int i, best = -1
    cdef Block found
    found.data, found.capacity = NULL, 0
    for i in range(spare_count):
        if spares[i].capacity >= like and (best < 0 or spares[i].capacity < spares[best].capacity):
            best = i
    if best >= 0:
        found = spares[best]
        spare_count -= 1
        spares[best] = spares[spare_count]
        spare_bytes -= found.capacity
    return found


cdef class ColumnMemory:
    """A block that Arrow uses; when Arrow releases it, it is kept for reuse."""

    cdef void* data
    cdef Py_ssize_t size, capacity

    def __dealloc__(self):
        if self.data != NULL:
            give_back(self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef object as_buffer(void* data, Py_ssize_t size, Py_ssize_t capacity):
    """An Arrow buffer over a block, which belongs to Arrow from now on."""
    cdef ColumnMemory memory = ColumnMemory.__new__(ColumnMemory)
    memory.data, memory.size, memory.capacity = data, size, capacity
    return pa.py_buffer(memory)


# --- growing ---


cdef int grow(void** block, Py_ssize_t* capacity, Py_ssize_t needed) except -1 nogil:
    cdef Py_ssize_t wanted = max(needed, max(capacity[0] * 2, CAPACITY_MIN))
    cdef void* moved = realloc(block[0], wanted)
    if moved == NULL:
        with gil:
            raise MemoryError
    memset(<uint8_t*>moved + capacity[0], 0, wanted - capacity[0])
    block[0] = moved
    capacity[0] = wanted
    return 0


cdef int start(Column* column, Py_ssize_t width) except -1 nogil:
    """Make an empty column; width 0: its cells are of any size."""
    memset(column, 0, sizeof(Column))
    column.width = width
    grow(<void**>&column.data, &column.capacity, CAPACITY_MIN)
    if not width:
        grow(<void**>&column.ends, &column.ends_capacity, CAPACITY_MIN)
    return 0


cdef void drop(Column* column) noexcept nogil:
    free(column.data)
    free(column.ends)
    free(column.valid)
    memset(column, 0, sizeof(Column))


cdef int make_room(Column* column, Py_ssize_t size) except -1 nogil:
    if column.size + size > CELLS_BYTES_MAX:
        with gil:
            raise OverflowError("the cells of one batch take more than 2 GiB")
    return grow(<void**>&column.data, &column.capacity, column.size + size)


cdef int write_missing(Column* column) except -1 nogil:
    """Write the nulls that were only counted so far."""
    cdef Py_ssize_t first = column.count, end = column.count + column.missing, i
    if column.valid == NULL:
        grow(<void**>&column.valid, &column.valid_capacity, (end >> 3) + 1)
        memset(column.valid, 0xFF, first >> 3)
        column.valid[first >> 3] = (1 << (first & 7)) - 1
    elif end >> 3 >= column.valid_capacity:
        grow(<void**>&column.valid, &column.valid_capacity, (end >> 3) + 1)
    if column.width:
        memset(room_for_nulls(column), 0, column.missing * column.width)
        column.size += column.missing * column.width
    else:
        if (end + 1) * <Py_ssize_t>sizeof(int32_t) > column.ends_capacity:
            grow(<void**>&column.ends, &column.ends_capacity, (end + 1) * sizeof(int32_t))
        for i in range(first + 1, end + 1):
            column.ends[i] = column.ends[first]
    column.count, column.missing = end, 0
    return 0


cdef uint8_t* room_for_nulls(Column* column) except NULL nogil:
    return room(column, column.missing * column.width)


cdef int append_odd_text(Column* column, const uint8_t* p, Py_ssize_t size) except -1 with gil:
    text = p[:size].decode("utf-8", "replace").encode()
    return append_bytes(column, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


# --- handing over ---


cdef object take_cells(Column* column, object kind, list children=None):
    """The cells so far as an array. The column is empty afterwards, with room for as much as it had."""
    cdef Column full
    cdef Block block
    if column.missing:
        write_missing(column)
    full = column[0]
    memset(column, 0, sizeof(Column))
    column.width = full.width
    buffers = [None]
    if full.valid != NULL:
        buffers[0] = as_buffer(full.valid, (full.count + 7) >> 3, full.valid_capacity)
    if not full.width:
        buffers.append(as_buffer(full.ends, (full.count + 1) * sizeof(int32_t), full.ends_capacity))
        block = take_spare(full.ends_capacity)
        column.ends, column.ends_capacity = <int32_t*>block.data, block.capacity
        if column.ends == NULL:
            grow(<void**>&column.ends, &column.ends_capacity, full.ends_capacity)
        column.ends[0] = 0
    block = take_spare(full.capacity)
    column.data, column.capacity = <uint8_t*>block.data, block.capacity
    if column.data == NULL:
        grow(<void**>&column.data, &column.capacity, full.capacity)
    if children is None:
        buffers.append(as_buffer(full.data, full.size, full.capacity))
    else:
        give_back(full.data, full.capacity)
    return pa.Array.from_buffers(kind, full.count, buffers, full.nulls, children=children)
