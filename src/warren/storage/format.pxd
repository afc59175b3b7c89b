from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.broker.message cimport Message

cdef enum:
    HEAD_BYTES = 32          # of every file's header
    RECORD_HEAD_BYTES = 32
    RECORD_BYTES_MIN = 40    # a record with two empty names, and properties that say nothing
    MARK_BYTES = 16
    FLAG_PERSISTENT = 1
    FLAG_DIED = 2
    FLAG_SCHEDULED = 4
    POSITIONS_MAX = 1 << 22  # of one segment: a long way between two of its messages means a new one


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + 7) & ~<Py_ssize_t>7


cdef struct RecordHead:
    uint32_t crc
    uint32_t length
    uint64_t position
    uint64_t time_ms
    uint32_t properties_length
    uint32_t flags


cdef struct IndexEntry:
    uint32_t relative
    uint32_t offset
    uint32_t body


cdef struct DueEntry:
    uint32_t relative
    uint32_t offset
    uint64_t due_ms


cdef struct Notes:
    uint64_t base
    uint64_t above  # the position of the record before
    Py_ssize_t count
    Py_ssize_t due_count
    IndexEntry* entries
    DueEntry* dues


cdef struct Mark:
    uint32_t first
    uint32_t count
    uint32_t deliveries
    uint32_t crc


cdef bint header_is_sound(
    const uint8_t* p, const char* magic, uint32_t version, uint64_t base
) noexcept nogil
cdef Py_ssize_t record_bytes(Message message) noexcept
cdef void put_record(uint8_t* p, Py_ssize_t size, uint64_t position, uint64_t time_ms, Message message) noexcept
cdef uint8_t* put_head(uint8_t* p, uint64_t position, uint64_t time_ms, Message message) noexcept
cdef Py_ssize_t record_length(const uint8_t* p, Py_ssize_t left, uint64_t above) noexcept nogil
cdef Py_ssize_t find_record(
    const uint8_t* data, Py_ssize_t at, Py_ssize_t size, uint64_t above, uint64_t below
) noexcept nogil
cdef bytes same_or_new(bytes known, const uint8_t* p, Py_ssize_t size)
cdef Py_ssize_t bytes_before_body(const uint8_t* p, Py_ssize_t left) noexcept
cdef Message take_message(const uint8_t* p, Message like, bytes body=*)
cdef Py_ssize_t walk(const uint8_t* data, Py_ssize_t at, Py_ssize_t size, Notes* notes) noexcept nogil
cdef void seal_mark(Mark* mark, uint64_t base) noexcept nogil
cdef bint mark_is_sound(const Mark* mark, uint64_t base) noexcept nogil
