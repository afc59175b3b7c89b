from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from warren.broker.message cimport Message

# Every number of the format stands here, once: Python gets the same names from the module. That the structs below have
# these sizes is checked when the module is imported.
cpdef enum:
    NAME_DIGITS = 20         # in which a file's name says the base
    POSITIONS_MAX = 1 << 22  # of one segment: a long way between two of its messages means a new one

    # the header of every file
    HEADER_BYTES = 32
    MAGIC_BYTES = 8
    VERSION_AT = 8
    HEADER_CRC_AT = 12
    BASE_AT = 16
    BASE_BYTES = 8
    EPOCH_AT = 24            # of a segment; files with entries have two other numbers there
    COUNT_AT = 24
    END_AT = 28

    # a record
    RECORD_ALIGNMENT = 8
    RECORD_HEAD_BYTES = 32
    RECORD_BYTES_MIN = 40    # a record with two empty names, and properties that say nothing
    RECORD_CHECKED_FROM = 4  # what the record's checksum is over begins here
    POSITION_AT = 8
    TIME_AT = 16
    FLAG_PERSISTENT = 1
    FLAG_DIED = 2
    FLAG_SCHEDULED = 4

    # what is beside the records
    INDEX_MORE_BYTES = 8     # behind the header of an index: how many entries its due file has, and zeros
    INDEX_ENTRY_BYTES = 12
    INDEX_ENTRY_FIELDS = 3   # of four bytes each
    DUE_ENTRY_BYTES = 16
    OFFSET_IN_ENTRY_AT = 4   # in an entry of either file, where the record begins
    MARK_BYTES = 16
    MARK_CRC_AT = 12
    CHUNKS_MORE_BYTES = 16   # behind the header of a chunks file: last and last_ms
    CHUNK_ENTRY_BYTES = 88
    FILTER_BYTES = 64        # the Bloom filter of a chunk
    FILTER_WORDS = 8
    SOME_UNFILTERED = 1      # a chunk's flag

    # the journal: see journal_record.pyx
    JOURNAL_MAGIC = 0x314A5257  # "WRJ1"
    JOURNAL_CHECKED_FROM = 8    # behind the magic number and the checksum of what follows

cdef extern from *:
    """
    #define WARREN_MARK_ACKED 0xFFFFFFFFu
    #define WARREN_DELIVERIES_MAX 0xFFFFFFFEu
    """
    const uint32_t MARK_ACKED "WARREN_MARK_ACKED"          # the positions of a mark are done with
    const uint32_t DELIVERIES_MAX "WARREN_DELIVERIES_MAX"  # or else, how often they were delivered, up to this


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + RECORD_ALIGNMENT - 1) & ~<Py_ssize_t>(RECORD_ALIGNMENT - 1)


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
    # what is noted of a segment's records while they are walked through
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


cdef struct ChunkEntry:
    uint32_t relative
    uint32_t offset
    uint64_t time_ms
    uint32_t flags
    uint32_t zero
    uint64_t values[FILTER_WORDS]


cdef packed struct JournalHead:
    uint32_t magic
    uint32_t crc
    uint64_t salt
    uint32_t size
    uint32_t count


cdef packed struct JournalPart:
    uint64_t offset
    uint32_t size
    uint16_t path_size


cdef bint header_is_sound(
    const uint8_t* p, const char* magic, uint32_t version, uint64_t base
) noexcept nogil
cdef uint64_t epoch_in(const uint8_t* p) noexcept nogil
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
