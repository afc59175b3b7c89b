# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A round of the group commit as the journal has it: which bytes go where, and these bytes.

    head       magic, checksum of all that follows, salt, bytes of the whole record, number of parts
    parts      of each: offset in its file, bytes, length of its path; the path below the data directory, and if the
               segment has an epoch, "@" and that: a path may get another segment with another epoch
    bytes      of all parts, one after the other

The salt is drawn anew whenever a journal file is begun. What is left in it of an earlier time has another one, and
nobody who publishes messages knows it, so that no body can pass for a record.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.storage.checksum cimport crc32c
from warren.storage.disk cimport Buffer
from warren.storage.format cimport JOURNAL_CHECKED_FROM, JOURNAL_MAGIC, JournalHead, JournalPart
from warren.storage.segment cimport Segment


def put_head(Buffer head, uint64_t salt, list segments, Py_ssize_t above):
    """Write the head and the parts of a record with what these segments have in flight. Of their paths, `above`
    characters are those of the data directory. The checksum is left to whoever writes it. The record's size.
    """
    cdef Segment segment
    cdef JournalHead* start
    cdef JournalPart part
    cdef bytes path
    cdef uint8_t* p
    cdef Py_ssize_t size = 0
    head.clear()
    head.room(sizeof(JournalHead))
    for segment in segments:
        path = path_below(segment, above)
        part.offset, part.size, part.path_size = segment.written, segment.flying.total(), PyBytes_GET_SIZE(path)
        p = head.room(sizeof(JournalPart) + PyBytes_GET_SIZE(path))
        memcpy(p, &part, sizeof(JournalPart))
        memcpy(p + sizeof(JournalPart), PyBytes_AS_STRING(path), PyBytes_GET_SIZE(path))
        size += part.size
    start = <JournalHead*>head.data
    start.magic, start.crc, start.salt = JOURNAL_MAGIC, 0, salt
    start.size, start.count = head.size + size, len(segments)
    return head.size + size


cdef bytes path_below(Segment segment, Py_ssize_t above):
    path = segment.path[above:]
    return f"{path}@{segment.epoch}".encode() if segment.epoch else path.encode()


def read_record(bytes data, Py_ssize_t at, salt=None):
    """The record at this place, if one begins there with this salt, or any: its salt, its size, and a list of its
    parts as (path, offset, bytes), which is None if it is damaged.
    """
    cdef JournalHead head
    cdef const uint8_t* checked
    if at + <Py_ssize_t>sizeof(JournalHead) > len(data):
        return None
    memcpy(&head, PyBytes_AS_STRING(data) + at, sizeof(JournalHead))
    if head.magic != JOURNAL_MAGIC or (salt is not None and head.salt != salt):
        return None
    if head.size < sizeof(JournalHead) or at + <Py_ssize_t>head.size > len(data):
        return None
    checked = <const uint8_t*>PyBytes_AS_STRING(data) + at + JOURNAL_CHECKED_FROM
    if crc32c(checked, head.size - JOURNAL_CHECKED_FROM) != head.crc:
        return head.salt, head.size, None
    return head.salt, head.size, parts_of(data, at, head.count)


cdef list parts_of(bytes data, Py_ssize_t at, uint32_t count):
    """Of a record that is sound."""
    cdef const char* p = PyBytes_AS_STRING(data)
    cdef JournalPart part
    cdef list found = []
    cdef uint32_t i
    cdef Py_ssize_t end
    at += sizeof(JournalHead)
    for i in range(count):
        memcpy(&part, p + at, sizeof(JournalPart))
        at += sizeof(JournalPart)
        found.append((p[at:at + part.path_size].decode(), part.offset, part.size))
        at += part.path_size
    for i in range(count):
        path, offset, size = found[i]
        end = at + <Py_ssize_t>size
        found[i] = (path, offset, data[at:end])
        at = end
    return found
