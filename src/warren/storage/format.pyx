# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The segment log, byte by byte. Queues, streams, replicated logs and the Spark reader use this one format.

A log is a directory of segments. Each is named by the position of its first record, in 20 digits, its base:

    00000000000000000001.seg     the records
    00000000000000000001.acks    what became of them, in a queue
    00000000000000000001.idx     where each record begins, once the segment is closed
    00000000000000000001.due     which of them have a time of their own, if any, beside the index
    00000000000000000001.chunks  of a stream, instead of those three: where to look for a time and for filter values
    00000000000000000001.torn    bytes that were no record, set aside by recovery
    00000000000000000001.acks.new  an ack file that is being written anew, with fewer marks that say the same

All numbers are little-endian, all records begin at a multiple of 8, and all checksums are CRC-32C.

    .seg       header { record }*
    header     magic:8 = "WARREN\\0S"  version:uint32  crc:uint32  base:uint64  epoch:uint64
               crc is over all but itself; epoch is the term of the leader that began the segment, in a cluster: then
               the version is 2. A segment of a node that is alone has version 1, and epoch 0.

    record     0   crc:uint32                over all that follows, without the padding
               4   length:uint32             from crc to the end of the body, without the padding
               8   position:uint64           each record's is above that of the one before
              16   time_ms:uint64            when it came, since 1970; if scheduled, when it is due
              24   properties_length:uint32
              28   flags:uint32              1 = persistent, 2 = was dead-lettered, 4 = scheduled
              32   exchange:shortstr         a length octet, and so many bytes
                   routing_key:shortstr
                   properties                as in the content header frame: flags, and the values
                   body                      the rest
                   zeros up to a multiple of 8

    .idx       header dues:uint32 zero:uint32 { relative:uint32 offset:uint32 body:uint32 }*
    header     magic:8 = "WARREN\\0I"  version:uint32 = 2  crc:uint32  base:uint64  count:uint32  end:uint32
               crc is over all but itself, the entries included; relative is a record's position less the base,
               body the size of its body; end is where the last record ends, with its padding; dues is how many
               entries the .due file has, which is not there if there are none
               Version 1 is without dues, zero and body. It is read to look into a log, and written anew by a
               broker that starts.

    .due       header { relative:uint32 offset:uint32 due_ms:uint64 }*
    header     magic:8 = "WARREN\\0D"  version:uint32 = 1, the rest as in .idx
               due_ms is the record's time_ms if it is scheduled; else, if its properties have an expiration,
               time_ms and that. It is written before the index, and is of no use without it.

    .acks      header { mark }*
    header     magic:8 = "WARREN\\0A", the rest as in a .seg of version 1
    mark       first:uint32 count:uint32 deliveries:uint32 crc:uint32
               of `count` positions from base + first on: how often they have been delivered, or
               0xFFFFFFFF: they are done with. crc is over base, first, count and deliveries. Done with is
               final; else the highest number holds.

    .chunks    header last:uint64 last_ms:uint64 { chunk }*
    header     magic:8 = "WARREN\\0C"  version:uint32 = 1, the rest as in .idx
    chunk      relative:uint32 offset:uint32 time_ms:uint64 flags:uint32 zero:uint32 values:64
               of the records from an offset on, 64 KiB or a little more: the position and time of the first; flags:
               1 = some have no x-stream-filter-value; values: a Bloom filter of those values that the others have: of
               its 512 bits each value sets three, which are the lowest, next and third nine bits of its CRC-32C. last
               and last_ms are the position and time of the segment's last record. Times do not go down in a
               segment; the next one may begin earlier, if the clock was set back.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from struct import Struct

from warren.amqp.traits cimport raw_expiration
from warren.broker.message cimport Message, publish_message
from warren.storage.checksum cimport crc32c, crc32c_by_table, crc32c_on

ACKED = MARK_ACKED
RELATIVE_MAX = 0xFFFFFFFF  # of a position to its segment's base, as an index can say it
SUFFIXES = ("seg", "acks", "idx", "idx.new", "due", "chunks", "chunks.new", "torn", "acks.torn", "acks.new")
RECORD_HEAD = Struct("<IIQQII")  # crc, length, position, time_ms, properties_length, flags
INDEX_ENTRY = Struct("<III")     # relative, offset, body
DUE_ENTRY = Struct("<IIQ")       # relative, offset, due_ms
MARK = Struct("<IIII")           # first, count, deliveries, crc
SEGMENT_MAGIC = b"WARREN\0S"
INDEX_MAGIC = b"WARREN\0I"
ACKS_MAGIC = b"WARREN\0A"
DUES_MAGIC = b"WARREN\0D"
CHUNKS_MAGIC = b"WARREN\0C"
# the highest version of each kind of file is written, the others are read; but a segment without an epoch is still
# written as version 1, which an earlier broker can read
VERSIONS = {SEGMENT_MAGIC: (1, 2), INDEX_MAGIC: (1, 2), ACKS_MAGIC: (1,), DUES_MAGIC: (1,), CHUNKS_MAGIC: (1,)}
WITH_ENTRIES = (INDEX_MAGIC, DUES_MAGIC, CHUNKS_MAGIC)  # the checksum in the header is over the whole file


assert sizeof(RecordHead) == RECORD_HEAD_BYTES == RECORD_HEAD.size
assert sizeof(IndexEntry) == INDEX_ENTRY_BYTES == INDEX_ENTRY.size == 4 * INDEX_ENTRY_FIELDS
assert sizeof(DueEntry) == DUE_ENTRY_BYTES == DUE_ENTRY.size
assert sizeof(Mark) == MARK_BYTES == MARK.size
assert sizeof(ChunkEntry) == CHUNK_ENTRY_BYTES and FILTER_BYTES == 8 * FILTER_WORDS


class UnknownVersion(Exception):
    """The file is from a later WarrenMQ, or from another program."""


# --- names and numbers ---


def segment_name(uint64_t base):
    """What the names of a segment's files begin with."""
    return str(base).zfill(NAME_DIGITS)


def base_of(str stem):
    """The base that the part of a file's name before the first dot says; None if the file is of no segment."""
    return int(stem) if len(stem) == NAME_DIGITS and stem.isdecimal() else None


def uint32_at(data, Py_ssize_t at):
    return int.from_bytes(data[at:at + 4], "little")


def uint64_at(data, Py_ssize_t at):
    return int.from_bytes(data[at:at + 8], "little")


# --- headers ---


def encode_header(bytes magic, uint64_t base, uint32_t count=0, uint32_t end=0, bytes entries=b""):
    """The header of a file, of the kind that its magic number says, and the entries of one that has some."""
    version = 1 if magic == SEGMENT_MAGIC else max(VERSIONS[magic])
    return with_checksum(
        magic, version, base.to_bytes(8, "little") + count.to_bytes(4, "little") + end.to_bytes(4, "little") + entries
    )


def encode_segment_header(uint64_t base, uint64_t epoch=0):
    """The header of a segment that was begun in an epoch; 0 for a node that is alone."""
    rest = base.to_bytes(8, "little") + epoch.to_bytes(8, "little")
    return with_checksum(SEGMENT_MAGIC, 2 if epoch else 1, rest)


cdef bytes with_checksum(bytes magic, uint32_t version, bytes rest):
    cdef bytes start = magic + version.to_bytes(4, "little")
    cdef uint32_t crc = checksum(start + rest)
    return start + crc.to_bytes(4, "little") + rest


def check_header(bytes magic, data, uint64_t base):
    """The version of a file; raise ValueError if its header is not that of a file of this kind with this base."""
    head = bytes(data[:HEADER_BYTES])
    if len(head) < HEADER_BYTES:
        raise ValueError("the file is shorter than its header")
    if head[:MAGIC_BYTES] != magic:
        raise ValueError("the file does not begin as such a file does")
    version = uint32_at(head, VERSION_AT)
    if version not in VERSIONS[magic]:
        raise UnknownVersion(f"version {version} is not known here")
    entries = bytes(data[HEADER_BYTES:]) if magic in WITH_ENTRIES else b""
    if uint32_at(head, HEADER_CRC_AT) != checksum(head[:HEADER_CRC_AT] + head[BASE_AT:] + entries):
        raise ValueError("the header does not match its checksum")
    if uint64_at(head, BASE_AT) != base:
        raise ValueError("the base in the header is not that of the file's name")
    return version


def segment_epoch(data, uint64_t base):
    """The epoch in the header of a segment; raise ValueError or UnknownVersion if that is not sound."""
    return uint64_at(data, EPOCH_AT) if check_header(SEGMENT_MAGIC, data, base) > 1 else 0


def count_and_end(data):
    """From the header of a file with entries: how many records the segment has, and where the last one ends. The
    header of a due file says how many entries it has itself.
    """
    return uint32_at(data, COUNT_AT), uint32_at(data, END_AT)


cdef bint header_is_sound(
    const uint8_t* p, const char* magic, uint32_t version, uint64_t base
) noexcept nogil:
    """Whether a file begins with this header, whose checksum is over nothing but the header."""
    cdef uint8_t checked[HEADER_BYTES - (BASE_AT - HEADER_CRC_AT)]
    memcpy(checked, p, HEADER_CRC_AT)
    memcpy(checked + HEADER_CRC_AT, p + BASE_AT, HEADER_BYTES - BASE_AT)
    return (
        memcmp(p, magic, MAGIC_BYTES) == 0
        and (<const uint32_t*>(p + VERSION_AT))[0] == version
        and (<const uint32_t*>(p + HEADER_CRC_AT))[0] == crc32c(checked, sizeof(checked))
        and (<const uint64_t*>(p + BASE_AT))[0] == base
    )


cdef uint64_t epoch_in(const uint8_t* p) noexcept nogil:
    """The epoch in the sound header of a segment."""
    return (<const uint64_t*>(p + EPOCH_AT))[0] if (<const uint32_t*>(p + VERSION_AT))[0] > 1 else 0


def checksum(const uint8_t[::1] data, uint32_t before=0):
    return crc32c_on(before, &data[0], data.shape[0]) if data.shape[0] else before


def checksum_within(bytes data, Py_ssize_t at, Py_ssize_t end):
    """Of the bytes from one place to another, without an object for them."""
    assert 0 <= at <= end <= PyBytes_GET_SIZE(data), "it is within the data"
    return crc32c(<const uint8_t*>PyBytes_AS_STRING(data) + at, end - at)


def checksum_by_table(const uint8_t[::1] data):
    """The same checksum, computed as on a processor without an instruction for it."""
    return ~crc32c_by_table(0xFFFFFFFF, &data[0], data.shape[0]) & 0xFFFFFFFF if data.shape[0] else 0


# --- records ---


cdef Py_ssize_t record_bytes(Message message) noexcept:
    """How many bytes it takes, padding included."""
    return padded(
        RECORD_HEAD_BYTES
        + PyBytes_GET_SIZE(message.exchange)
        + PyBytes_GET_SIZE(message.routing_key)
        + PyBytes_GET_SIZE(message.properties)
        + PyBytes_GET_SIZE(message.body)
    )


cdef inline uint8_t* put_bytes(uint8_t* p, bytes data) noexcept:
    memcpy(p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return p + PyBytes_GET_SIZE(data)


cdef void put_record(uint8_t* p, Py_ssize_t size, uint64_t position, uint64_t time_ms, Message message) noexcept:
    """Write a record of `size` = record_bytes(message) bytes."""
    cdef RecordHead* head = <RecordHead*>p
    cdef uint8_t* at
    (<uint64_t*>(p + size - RECORD_ALIGNMENT))[0] = 0
    at = put_head(p, position, time_ms, message)
    put_bytes(at, message.body)
    head.crc = crc32c(p + RECORD_CHECKED_FROM, head.length - RECORD_CHECKED_FROM)


cdef uint8_t* put_head(uint8_t* p, uint64_t position, uint64_t time_ms, Message message) noexcept:
    """All of a record but its checksum and body, which is to begin where this ends."""
    cdef RecordHead* head = <RecordHead*>p
    cdef uint8_t* at = p + RECORD_HEAD_BYTES
    at = put_bytes(at, message.exchange)
    at = put_bytes(at, message.routing_key)
    at = put_bytes(at, message.properties)
    head.length = <uint32_t>(at - p + PyBytes_GET_SIZE(message.body))
    head.position = position
    head.time_ms = time_ms
    head.properties_length = <uint32_t>PyBytes_GET_SIZE(message.properties)
    head.flags = (
        (FLAG_PERSISTENT if message.persistent else 0)
        | (FLAG_DIED if message.died else 0)
        | (FLAG_SCHEDULED if message.scheduled else 0)
    )
    return at


cdef Py_ssize_t record_length(const uint8_t* p, Py_ssize_t left, uint64_t above) noexcept nogil:
    """The padded size of the sound record at `p`, whose position must be above this. 0 if there is none. If `left`,
    the number of bytes that are there, is too little to tell: minus the number that is needed.
    """
    cdef const RecordHead* head = <const RecordHead*>p
    cdef Py_ssize_t names
    if left < RECORD_BYTES_MIN:
        return -RECORD_BYTES_MIN
    if head.length < RECORD_HEAD_BYTES + 4 or head.position <= above:
        return 0
    if padded(head.length) > left:
        return -padded(head.length)
    names = 1 + p[RECORD_HEAD_BYTES]
    if RECORD_HEAD_BYTES + names >= <Py_ssize_t>head.length:
        return 0
    names += 1 + p[RECORD_HEAD_BYTES + names]
    if RECORD_HEAD_BYTES + names + <Py_ssize_t>head.properties_length > <Py_ssize_t>head.length:
        return 0
    if head.crc != crc32c(p + RECORD_CHECKED_FROM, head.length - RECORD_CHECKED_FROM):
        return 0
    return padded(head.length)


cdef Py_ssize_t find_record(
    const uint8_t* data, Py_ssize_t at, Py_ssize_t size, uint64_t above, uint64_t below
) noexcept nogil:
    """Where the next sound record begins behind something that is none; -1 if there is none. A record whose position
    is not below `below` is none of this segment: it is in the body of one.
    """
    while at + RECORD_BYTES_MIN <= size:
        if (<const RecordHead*>(data + at)).position < below:
            if record_length(data + at, size - at, above) > 0:
                return at
        at += RECORD_ALIGNMENT
    return -1


cdef bytes same_or_new(bytes known, const uint8_t* p, Py_ssize_t size):
    if known is not None and PyBytes_GET_SIZE(known) == size and memcmp(PyBytes_AS_STRING(known), p, size) == 0:
        return known
    return PyBytes_FromStringAndSize(<char*>p, size)


cdef Py_ssize_t bytes_before_body(const uint8_t* p, Py_ssize_t left) noexcept:
    """How many bytes of a record come before its body; 0 if so many bytes do not say it, or it makes no sense."""
    cdef const RecordHead* head = <const RecordHead*>p
    cdef Py_ssize_t before = RECORD_HEAD_BYTES
    cdef int name
    for name in range(2):
        if before >= left:
            return 0
        before += 1 + p[before]
    before += head.properties_length
    return before if before <= <Py_ssize_t>head.length else 0


cdef Message take_message(const uint8_t* p, Message like, bytes body=None):
    """The message of a sound record. Strings that are the same in the message before, `like`, are shared. The body
    follows the properties, unless it is given.
    """
    cdef const RecordHead* head = <const RecordHead*>p
    cdef const uint8_t* at = p + RECORD_HEAD_BYTES
    cdef Py_ssize_t size = 1 + at[0]
    cdef Message message
    exchange = same_or_new(like.exchange if like is not None else None, at, size)
    at += size
    size = 1 + at[0]
    routing_key = same_or_new(like.routing_key if like is not None else None, at, size)
    at += size
    properties = same_or_new(like.properties if like is not None else None, at, head.properties_length)
    at += head.properties_length
    if body is None:
        body = PyBytes_FromStringAndSize(<char*>at, p + head.length - at)
    if like is None or properties is not like.properties:
        return Message(
            exchange, routing_key, properties, body, head.flags & FLAG_PERSISTENT != 0, head.time_ms,
            head.flags & FLAG_DIED != 0, head.flags & FLAG_SCHEDULED != 0,
        )
    message = publish_message(  # which reads nothing of the properties again
        exchange, routing_key, properties, body, head.flags & FLAG_PERSISTENT != 0, head.time_ms,
        like.expiration_ms, like.priority,
    )
    message.died = head.flags & FLAG_DIED != 0
    message.scheduled = head.flags & FLAG_SCHEDULED != 0
    return message


class Record:
    """A record as found in a segment."""

    __slots__ = ("message", "offset", "position", "size", "time_ms")

    def __init__(self, offset, size, position, time_ms, message):
        self.offset = offset
        self.size = size
        self.position = position
        self.time_ms = time_ms
        self.message = message


def encode_record(uint64_t position, uint64_t time_ms, Message message):
    cdef Py_ssize_t size = record_bytes(message)
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    put_record(<uint8_t*>PyBytes_AS_STRING(data), size, position, time_ms, message)
    return data


def records(const uint8_t[::1] data):
    """Every sound record of a segment, those behind a bad one too."""
    cdef Py_ssize_t at = HEADER_BYTES, size = data.shape[0], length
    cdef uint64_t above = 0
    cdef const RecordHead* head
    cdef Message message = None
    while True:
        at = find_record(&data[0], at, size, above, <uint64_t>-1) if at + RECORD_BYTES_MIN <= size else -1
        if at < 0:
            return
        length = record_length(&data[at], size - at, above)
        head = <const RecordHead*>&data[at]
        above = head.position
        message = take_message(&data[at], message)
        yield Record(at, length, above, head.time_ms, message)
        at += length


cdef enum:
    WALKED_AT_ONCE_MAX = 64 * 1024  # bytes


cdef struct Walk:
    Py_ssize_t at       # where the next record begins
    Py_ssize_t count    # of the sound records before
    uint64_t above      # the position of the last one of them
    Py_ssize_t needed   # how many bytes there have to be for the next one; 0 if no record begins there


cdef void walk_records_of(const uint8_t* p, Py_ssize_t size, Walk* walk) noexcept nogil:
    cdef Py_ssize_t length = -RECORD_BYTES_MIN
    while walk.at < size:
        length = record_length(p + walk.at, size - walk.at, walk.above)
        if length <= 0:
            break
        walk.above = (<const RecordHead*>(p + walk.at)).position
        walk.at += length
        walk.count += 1
        length = -RECORD_BYTES_MIN
    walk.needed = -length


def walk_records(const uint8_t[::1] data, Py_ssize_t at, uint64_t above):
    """From a place in some bytes of a segment on, as far as sound records follow each other, with positions above
    this one: where they end, how many they are, the position of the last one, which is `above` if there is none, and
    how many bytes there have to be for the next one; 0 if no record begins there. Few bytes are walked through without
    letting go of the interpreter's lock: the event loop would have to wait for it again.
    """
    cdef Py_ssize_t size = data.shape[0]
    cdef const uint8_t* p = &data[0] if size else NULL
    cdef Walk walk
    walk.at, walk.count, walk.above, walk.needed = at, 0, above, 0
    if size <= WALKED_AT_ONCE_MAX:
        walk_records_of(p, size, &walk)
    else:
        with nogil:
            walk_records_of(p, size, &walk)
    return walk.at, walk.count, walk.above, walk.needed


class Scan:
    """What a walk through a whole segment has found."""

    __slots__ = ("bad", "count", "dues", "end", "entries", "last")

    def __init__(self, count, last, end, bad, entries, dues=b""):
        self.count = count      # how many sound records there are
        self.last = last        # the position of the last one; None if there is none
        self.end = end          # where it ends: behind that is no record
        self.bad = bad          # stretches (offset, size) between records that are none
        self.entries = entries  # as the index has them
        self.dues = dues        # as the due file has them


cdef Py_ssize_t walk(const uint8_t* data, Py_ssize_t at, Py_ssize_t size, Notes* notes) noexcept nogil:
    """Go from record to record, and note each. Where the first thing begins that is no record."""
    cdef Py_ssize_t length
    while True:
        length = record_length(data + at, size - at, notes.above)
        if length <= 0:
            return at
        notes.above = (<const RecordHead*>(data + at)).position
        note(data + at, at, notes)
        at += length


cdef void note(const uint8_t* p, Py_ssize_t at, Notes* notes) noexcept nogil:
    cdef const RecordHead* head = <const RecordHead*>p
    cdef const uint8_t* properties = p + RECORD_HEAD_BYTES
    cdef IndexEntry* entry = notes.entries + notes.count
    cdef int64_t expiration_ms
    properties += 1 + properties[0]
    properties += 1 + properties[0]
    entry.relative, entry.offset = <uint32_t>(head.position - notes.base), <uint32_t>at
    entry.body = <uint32_t>(p + head.length - properties) - head.properties_length
    notes.count += 1
    if head.flags & FLAG_SCHEDULED:
        note_due(entry, head.time_ms, notes)
    else:
        expiration_ms = raw_expiration(properties, head.properties_length)
        if expiration_ms >= 0:
            note_due(entry, head.time_ms + <uint64_t>expiration_ms, notes)


cdef void note_due(const IndexEntry* entry, uint64_t due_ms, Notes* notes) noexcept nogil:
    cdef DueEntry* due = notes.dues + notes.due_count
    due.relative, due.offset, due.due_ms = entry.relative, entry.offset, due_ms
    notes.due_count += 1


def scan(const uint8_t[::1] data, uint64_t base):
    """Walk through a whole segment."""
    cdef Py_ssize_t most = data.shape[0] // RECORD_BYTES_MIN + 1, at
    cdef Notes notes
    cdef list bad = []
    notes.base, notes.above, notes.count, notes.due_count = base, base - 1, 0, 0
    notes.entries = <IndexEntry*>malloc(most * sizeof(IndexEntry))
    notes.dues = <DueEntry*>malloc(most * sizeof(DueEntry))
    try:
        if notes.entries == NULL or notes.dues == NULL:
            raise MemoryError
        at = walk_on(data, &notes, bad)
        entries = PyBytes_FromStringAndSize(<char*>notes.entries, notes.count * sizeof(IndexEntry))
        dues = PyBytes_FromStringAndSize(<char*>notes.dues, notes.due_count * sizeof(DueEntry))
    finally:
        free(notes.entries)
        free(notes.dues)
    return Scan(notes.count, notes.above if notes.count else None, at, bad, entries, dues)


cdef Py_ssize_t walk_on(const uint8_t[::1] data, Notes* notes, list bad) except -1:
    """Go from one stretch of sound records to the next. Where the last record ends."""
    cdef Py_ssize_t at = HEADER_BYTES, size = data.shape[0], found
    while at + RECORD_BYTES_MIN <= size:
        with nogil:
            at = walk(&data[0], at, size, notes)
            found = find_record(&data[0], at + RECORD_ALIGNMENT, size, notes.above, notes.base + POSITIONS_MAX)
        if found < 0:
            break
        bad.append((at, found - at))
        at = found
    return at


# --- marks ---


cdef void seal_mark(Mark* mark, uint64_t base) noexcept nogil:
    mark.crc = mark_crc(mark, base)


cdef bint mark_is_sound(const Mark* mark, uint64_t base) noexcept nogil:
    return mark.crc == mark_crc(mark, base)


cdef uint32_t mark_crc(const Mark* mark, uint64_t base) noexcept nogil:
    """Over the base, and all of the mark but its checksum."""
    cdef uint8_t text[BASE_BYTES + MARK_CRC_AT]
    memcpy(text, &base, BASE_BYTES)
    memcpy(text + BASE_BYTES, mark, MARK_CRC_AT)
    return crc32c(text, sizeof(text))


def bad_marks(const uint8_t[::1] data, uint64_t base):
    """How many of the marks in some bytes of an ack file are not sound."""
    cdef Py_ssize_t size = data.shape[0], at = 0, bad = size % MARK_BYTES != 0
    while at + MARK_BYTES <= size:
        bad += not mark_is_sound(<const Mark*>&data[at], base)
        at += MARK_BYTES
    return bad


def encode_mark(uint64_t base, uint32_t first, uint32_t count, uint32_t deliveries):
    cdef Mark mark
    mark.first, mark.count, mark.deliveries = first, count, deliveries
    seal_mark(&mark, base)
    return PyBytes_FromStringAndSize(<char*>&mark, MARK_BYTES)
