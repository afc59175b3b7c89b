from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Column:
    uint8_t* data            # values of a fixed width, or the bytes of all cells
    Py_ssize_t size          # how many bytes of it are used
    Py_ssize_t capacity
    int32_t* ends            # where each cell begins, and the last one ends; NULL for a fixed width
    Py_ssize_t ends_capacity
    uint8_t* valid           # a bit for each cell
    Py_ssize_t valid_capacity
    Py_ssize_t count
    Py_ssize_t nulls


cdef class Memory:
    cdef uint8_t* data
    cdef Py_ssize_t size

cdef int start(Column* column, bint cut) except -1 nogil
cdef void drop(Column* column) noexcept nogil
cdef uint8_t* room(Column* column, Py_ssize_t size) except NULL nogil
cdef int close_cell(Column* column, bint present) except -1 nogil
cdef int append_bytes(Column* column, const uint8_t* p, Py_ssize_t size) except -1 nogil
cdef int append_text(Column* column, const uint8_t* p, Py_ssize_t size) except -1 nogil
cdef int append_null(Column* column) except -1 nogil
cdef int append_int64(Column* column, int64_t value) except -1 nogil
cdef int append_int32(Column* column, int32_t value) except -1 nogil
cdef int append_null_of(Column* column, Py_ssize_t width) except -1 nogil
cdef int close_list(Column* column, Py_ssize_t children, bint present) except -1 nogil
cdef bint is_ascii(const uint8_t* p, Py_ssize_t size) noexcept nogil
cdef list take_buffers(Column* column)
