# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes records of segments to Arrow record batches, with no Python object per record.

    decoder = Decoder(vhost, queue, …)
    decoder.seek(above, first, end, acked)      which positions are wanted of the next segment
    at = decoder.feed(data, at)                 decode record after record; `state` says why it stopped
    decoder.take()                              the rows so far, as one batch

One decoder is fed all pieces of a segment, and one segment after the other; a batch may span them. Each record is
checked as the broker checks it when it reads its own files: checksum, position, bounds; and its properties.
`benchmarks/spark_read.py` watches this.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

import pyarrow as pa

from warren.pipeline.segments.schema import SCHEMA, TEXT, TIME

from warren.amqp.traits cimport table_is_sound
from warren.amqp.wire cimport get16, get32, get64
from warren.pipeline.segments.columns cimport (
    Column, append_bytes, append_int32, append_int64, append_null, append_text, drop, start, take_cells,
)
from warren.pipeline.segments.tables cimport (
    Deaths, Headers, append_deaths, append_headers, append_no_deaths, append_no_headers, drop_deaths, drop_headers,
    start_deaths, start_headers, take_deaths, take_headers,
)
from warren.storage.format cimport RECORD_ALIGNMENT, RECORD_HEAD_BYTES, RecordHead, find_record, record_length

cdef enum:
    BIT_HEADERS = 13          # bits of the properties' flags: the first property has the highest, 15
    BIT_DELIVERY_MODE = 12
    BIT_PRIORITY = 11
    BIT_TIMESTAMP = 6
    BIT_LAST = 2
    BITS = 16
    BIT_EXCHANGE = 0          # exchange and routing key are no properties: they use the bits that AMQP leaves free
    BIT_ROUTING_KEY = 1

    OFFSETS = BITS            # columns that hold no text come behind the bits, in Decoder.columns
    TIMES = BITS + 1
    PRIORITIES = BITS + 2
    DELIVERY_MODES = BITS + 3
    BODIES = BITS + 4
    PUBLISHED = BITS + 5
    COLUMNS = BITS + 6

    MICROSECONDS = 1_000_000

    STATE_MORE = 0            # the next record is not whole: it takes at least `needed` bytes
    STATE_FULL = 1            # the batch is full: take it
    STATE_END = 2             # every wanted record of this segment is read
    STATE_BAD = 3             # there is no sound record here

cdef int64_t MILLISECONDS_MAX = 9_000_000_000_000_000  # later times do not fit an int64 of microseconds
cdef uint64_t PUBLISHED_SECONDS_MAX = 253_402_300_799  # the end of the year 9999, where Python's times end

NAMES, INT32, INT64, BINARY = SCHEMA.names, pa.int32(), pa.int64(), pa.binary()
MORE, FULL, END, BAD = STATE_MORE, STATE_FULL, STATE_END, STATE_BAD
OPEN_END = 2**63 - 1

# The text columns, and the bit of each.
cdef dict TEXTS = {
    "exchange": BIT_EXCHANGE, "routing_key": BIT_ROUTING_KEY, "content_type": 15, "content_encoding": 14,
    "correlation_id": 10, "reply_to": 9, "expiration": 8, "message_id": 7, "type": 5, "user_id": 4, "app_id": 3,
    "cluster_id": 2,
}
cdef int[6] WIDTHS = [8, 8, 4, 4, 0, 8]  # of the columns from OFFSETS on; 0 for any width
cdef int[12] TEXT_BITS = [BIT_EXCHANGE, BIT_ROUTING_KEY, 15, 14, 10, 9, 8, 7, 5, 4, 3, 2]


cdef struct Cells:
    const uint8_t* texts[BITS]    # by bit: the length octet of a text; NULL if the record has none
    const uint8_t* headers        # the first field; NULL if the record has no headers
    const uint8_t* headers_end    # the end of the last field
    const uint8_t* body
    const uint8_t* published      # the property timestamp; NULL if the record has none
    int delivery_mode             # -1 if the record has none
    int priority                  # likewise


cdef bint find_cells(const uint8_t* p, Cells* cells) noexcept nogil:
    """Find the parts of a sound record; False if its properties are not sound."""
    cdef const RecordHead* head = <const RecordHead*>p
    cdef const uint8_t* end
    cdef uint16_t flags
    cdef int bit
    for bit in range(BITS):
        cells.texts[bit] = NULL
    cells.headers = cells.published = NULL
    cells.delivery_mode = cells.priority = -1
    p += RECORD_HEAD_BYTES
    cells.texts[BIT_EXCHANGE] = p
    p += 1 + p[0]
    cells.texts[BIT_ROUTING_KEY] = p
    p += 1 + p[0]
    end = cells.body = p + head.properties_length
    if head.properties_length < 2:
        return False
    flags = get16(p)
    p += 2
    if flags & 3:
        return False
    for bit in range(BITS - 1, BIT_LAST - 1, -1):
        if flags & (1 << bit):
            p = find_cell(p, end, bit, cells)
            if p == NULL or p > end:
                return False
    return p == end


cdef const uint8_t* find_cell(const uint8_t* p, const uint8_t* end, int bit, Cells* cells) noexcept nogil:
    """Note the property of this bit; returns where it ends, NULL if it is not sound."""
    if p >= end:
        return NULL
    if bit == BIT_DELIVERY_MODE:
        cells.delivery_mode = p[0]
        return p + 1
    if bit == BIT_PRIORITY:
        cells.priority = p[0]
        return p + 1
    if bit == BIT_TIMESTAMP:
        cells.published = p
        return p + 8 if end - p >= 8 else NULL
    if bit == BIT_HEADERS:
        if end - p < 4 or <Py_ssize_t>get32(p) > end - p - 4:
            return NULL
        cells.headers = p + 4
        cells.headers_end = p + 4 + get32(p)
        return cells.headers_end if table_is_sound(cells.headers, cells.headers_end, 1) else NULL
    cells.texts[bit] = p
    return p + 1 + p[0]


cdef class Decoder:
    """Fills one batch after the other with the wanted records: those in the wanted ranges of positions and times
    that are not acked.
    """

    cdef readonly int state              # why `feed` stopped: MORE, FULL, END or BAD
    cdef readonly Py_ssize_t needed      # with MORE: how many bytes the next record takes at least
    cdef readonly Py_ssize_t rows        # in the batch so far
    cdef readonly uint64_t above         # the position of the last sound record
    cdef uint64_t first, end             # wanted positions: from `first` to before `end`
    cdef int64_t since_ms, until_ms      # wanted times: from `since_ms` to before `until_ms`
    cdef Py_ssize_t rows_max             # a batch has at most so many rows,
    cdef Py_ssize_t bytes_max            # and so many bytes of records, unless a single one is larger
    cdef Py_ssize_t bytes                # of the records in the batch so far
    cdef bint with_headers, with_body    # whether these are wanted; their columns are null if not
    cdef object vhosts, queues, streams  # constant columns, as long as the longest batch
    cdef const int64_t[::1] acked        # first and end of each run of acked positions, in order
    cdef Py_ssize_t acked_at             # where in `acked` the first run is that ends behind `above`
    cdef Column columns[COLUMNS]         # texts by the bit of their property, then those from OFFSETS on
    cdef Headers headers
    cdef Deaths deaths

    def __cinit__(
        self, str vhost, str queue, str stream_id="", *, bint headers=True, bint body=True,
        Py_ssize_t rows_max=16384, Py_ssize_t bytes_max=8 << 20, int64_t since_ms=0, int64_t until_ms=OPEN_END,
    ):
        cdef int i
        constant = (vhost, queue, stream_id or None)
        self.vhosts, self.queues, self.streams = (pa.repeat(pa.scalar(each, TEXT), rows_max) for each in constant)
        self.with_headers, self.with_body = headers, body
        self.rows_max, self.bytes_max = rows_max, bytes_max
        self.since_ms, self.until_ms = since_ms, until_ms
        for i in range(COLUMNS):
            start(&self.columns[i], WIDTHS[i - BITS] if i >= BITS else 0)
        start_headers(&self.headers)
        start_deaths(&self.deaths)
        self.seek(0, 1, OPEN_END, b"")

    def __dealloc__(self):
        cdef int i
        for i in range(COLUMNS):
            drop(&self.columns[i])
        drop_headers(&self.headers)
        drop_deaths(&self.deaths)

    def seek(self, uint64_t above, uint64_t first, uint64_t end, bytes acked):
        """Begin with another segment, or another place in it. All numbers are positions, as in the records: want
        those from `first` to before `end`; the next record is above `above`. `acked` is as in `SourceSegment`.
        """
        self.above, self.first, self.end = above, first, end
        self.acked = memoryview(acked).cast("q") if acked else None
        self.acked_at = 0
        self.state = STATE_MORE
        self.needed = 0

    def feed(self, const uint8_t[::1] data, Py_ssize_t at):
        """Decode the wanted ones of the records that begin at `at`; returns where it stopped."""
        if data.shape[0] == at:
            self.state, self.needed = STATE_MORE, 0
            return at
        with nogil:
            at = self.walk(&data[0], at, data.shape[0])
        return at

    cdef Py_ssize_t walk(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t size) except -1 nogil:
        cdef const RecordHead* head
        cdef Py_ssize_t length
        cdef Cells cells
        while True:
            length = record_length(data + at, size - at, self.above)
            if length <= 0:
                self.state = STATE_MORE if length else STATE_BAD
                self.needed = -length
                return at
            head = <const RecordHead*>(data + at)
            if head.position >= self.end:
                self.state = STATE_END
                return at
            if self.is_wanted(head):
                if self.rows and (self.rows >= self.rows_max or self.bytes + length > self.bytes_max):
                    self.state = STATE_FULL
                    return at
                if not find_cells(data + at, &cells):
                    self.state = STATE_BAD
                    return at
                self.append(head, &cells)
                self.bytes += length
            self.above = head.position
            at += length
            if head.position + 1 >= self.end:
                self.state = STATE_END
                return at

    cdef bint is_wanted(self, const RecordHead* head) noexcept nogil:
        cdef int64_t position = <int64_t>head.position, time_ms = <int64_t>head.time_ms
        if head.position < self.first or time_ms < self.since_ms or time_ms >= self.until_ms:
            return False
        if self.acked is None:
            return True
        while self.acked_at < self.acked.shape[0] and self.acked[self.acked_at + 1] <= position:
            self.acked_at += 2
        return self.acked_at == self.acked.shape[0] or position < self.acked[self.acked_at]

    cdef int append(self, const RecordHead* head, const Cells* cells) except -1 nogil:
        cdef int64_t time_ms = min(<int64_t>head.time_ms, MILLISECONDS_MAX)
        append_int64(&self.columns[OFFSETS], <int64_t>head.position - 1)
        append_int64(&self.columns[TIMES], time_ms * 1000)
        self.append_texts(cells)
        append_octet(&self.columns[PRIORITIES], cells.priority)
        append_octet(&self.columns[DELIVERY_MODES], cells.delivery_mode)
        if cells.published == NULL or get64(cells.published) > PUBLISHED_SECONDS_MAX:
            append_null(&self.columns[PUBLISHED])
        else:
            append_int64(&self.columns[PUBLISHED], <int64_t>get64(cells.published) * MICROSECONDS)
        if cells.headers == NULL:
            append_no_headers(&self.headers)
            append_no_deaths(&self.deaths)
        else:
            append_deaths(&self.deaths, cells.headers, cells.headers_end)
            if self.with_headers:
                append_headers(&self.headers, cells.headers, cells.headers_end)
            else:
                append_no_headers(&self.headers)
        if self.with_body:
            append_bytes(&self.columns[BODIES], cells.body, <const uint8_t*>head + head.length - cells.body)
        else:
            append_null(&self.columns[BODIES])
        self.rows += 1
        return 0

    cdef int append_texts(self, const Cells* cells) except -1 nogil:
        cdef const uint8_t* text
        cdef int bit
        for bit in TEXT_BITS:
            text = cells.texts[bit]
            if text == NULL:
                append_null(&self.columns[bit])
            else:
                append_text(&self.columns[bit], text + 1, text[0])
        return 0

    def take(self):
        """The rows so far; None if there are none."""
        cdef Py_ssize_t rows = self.rows
        if not rows:
            return None
        columns = {name: take_cells(&self.columns[<int>bit], TEXT) for name, bit in TEXTS.items()}
        columns["vhost"] = self.vhosts.slice(0, rows)
        columns["queue"] = self.queues.slice(0, rows)
        columns["stream_id"] = self.streams.slice(0, rows)
        columns["offset"] = take_cells(&self.columns[OFFSETS], INT64)
        columns["timestamp"] = take_cells(&self.columns[TIMES], TIME)
        columns["priority"] = take_cells(&self.columns[PRIORITIES], INT32)
        columns["delivery_mode"] = take_cells(&self.columns[DELIVERY_MODES], INT32)
        columns["published_at"] = take_cells(&self.columns[PUBLISHED], TIME)
        columns["headers"], columns["header_types"] = take_headers(&self.headers)
        columns["x_death"] = take_deaths(&self.deaths)
        columns["body"] = take_cells(&self.columns[BODIES], BINARY)
        self.rows = self.bytes = 0
        return pa.RecordBatch.from_arrays([columns[name] for name in NAMES], schema=SCHEMA)


cdef int append_octet(Column* column, int value) except -1 nogil:
    if value < 0:
        return append_null(column)
    return append_int32(column, value)


def walk(const uint8_t[::1] data, Py_ssize_t at, uint64_t above, uint64_t position, uint64_t time_ms):
    """Walk over sound records up to the first one that has this position or time, or a higher one. Returns

    - where that record is or would be,
    - the position of the last record that was passed, or `above` if none was,
    - its time, or -1,
    - how many bytes the next record takes if it is not whole; 0 if it is whole, or not sound.
    """
    cdef const RecordHead* head
    cdef Py_ssize_t length, size = data.shape[0], needed = 0
    cdef int64_t last_ms = -1
    with nogil:
        while True:
            length = record_length(&data[0] + at, size - at, above)
            if length <= 0:
                needed = -length
                break
            head = <const RecordHead*>(&data[0] + at)
            if head.position >= position or head.time_ms >= time_ms:
                break
            above, last_ms = head.position, <int64_t>head.time_ms
            at += length
    return at, above, last_ms, needed


def find_sound(const uint8_t[::1] data, Py_ssize_t at, uint64_t above, uint64_t below):
    """There is no sound record at `at`. Where the next one begins whose position is between `above` and `below`;
    -1 if there is none.
    """
    cdef Py_ssize_t found = -1
    if at < data.shape[0]:
        with nogil:
            found = find_record(&data[0], at + RECORD_ALIGNMENT, data.shape[0], above, below)
    return found
