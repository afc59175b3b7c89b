# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reading the directories of very many queues that hold little, without the interpreter's lock.

Most queues have a single small segment, and perhaps its acks. Reading one takes half of its time in the kernel, so
several threads read at once, each a batch of directories. A directory is taken over only if there is nothing in it
but these:

    queue.json                   is not looked into
    00000000000000000001.seg     small, and sound from its header to its last byte, with a record at least
    00000000000000000001.acks    or none; small, sound, and of no record that is not there

Or nothing but `queue.json`. Any other directory, and one that cannot be read, is left to `recovery.py`, so that all
damage is dealt with there and nowhere else. Nothing is written here.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, strcmp, strlen

from warren.storage.format import ACKS_MAGIC, SEGMENT_MAGIC, VERSIONS
from warren.storage.log_directory import MANIFEST
from warren.storage.segment_life import OnDisk

from warren.storage.fates cimport Fates
from warren.storage.format cimport (
    HEADER_BYTES, MARK_BYTES, NAME_DIGITS, RECORD_BYTES_MIN, DueEntry, IndexEntry, Mark, Notes, epoch_in,
    header_is_sound, mark_is_sound, walk,
)
from warren.storage.segment cimport Segment

cdef extern from *:
    """
    #include <dirent.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    typedef struct {
        uint64_t inode;
        int64_t next;
        uint16_t size;
        uint8_t kind;
        char name[];
    } warren_name;

    static ssize_t warren_names(int directory, void *room, size_t size) {
        return syscall(SYS_getdents64, directory, room, size);
    }
    """
    ctypedef struct Name "warren_name":
        uint16_t size
        uint8_t kind
        const char* name
    int DT_REG
    int O_CLOEXEC
    int O_DIRECTORY
    int O_RDONLY
    Py_ssize_t next_names "warren_names"(int directory, void* room, size_t size) nogil
    int openat(int directory, const char* name, int flags) nogil
    Py_ssize_t c_read "read"(int file, void* data, size_t size) nogil
    int c_close "close"(int file) nogil

cdef enum:
    NAME_BYTES = 32                     # of a segment's file, or a directory's number
    NAMES_BYTES = 4096                  # as many as the kernel hands out at once
    SEGMENT_BYTES_MAX = 64 * 1024
    ACKS_BYTES_MAX = 16 * 1024
    RECORDS_MAX = SEGMENT_BYTES_MAX // RECORD_BYTES_MIN + 1

cdef bytes segment_magic = SEGMENT_MAGIC, acks_magic = ACKS_MAGIC, manifest = MANIFEST.encode()
cdef const char* SEGMENT = segment_magic
cdef const char* ACKS = acks_magic
cdef const char* MANIFEST_NAME = manifest
cdef uint32_t ACKS_VERSION = max(VERSIONS[ACKS_MAGIC])


cdef struct Short:
    # what is known of one directory; of what is kept, where it begins in the batch's `kept`
    bint is_read
    bint has_segment
    bint has_acks
    char base_name[NAME_DIGITS + 1]
    uint64_t base
    uint64_t epoch
    uint64_t last
    Py_ssize_t count
    Py_ssize_t end
    Py_ssize_t body_bytes
    Py_ssize_t dues_at
    Py_ssize_t dues_bytes
    Py_ssize_t entries_at
    Py_ssize_t marks_at
    Py_ssize_t marks_bytes


cdef struct Room:
    # to read one directory in
    uint8_t names[NAMES_BYTES]
    uint8_t segment[SEGMENT_BYTES_MAX + 1]
    uint8_t acks[ACKS_BYTES_MAX + 1]
    IndexEntry entries[RECORDS_MAX]
    DueEntry dues[RECORDS_MAX]


cdef class ShortLogs:
    """A batch: of directories in one that is open, by their numbers. It is read once, in any thread."""

    cdef int parent
    cdef list numbers
    cdef Short* shorts
    cdef uint8_t* kept
    cdef Py_ssize_t kept_bytes, kept_room

    def __init__(self, int parent, list numbers):
        self.parent = parent
        self.numbers = numbers
        self.shorts = <Short*>PyMem_RawCalloc(len(numbers), sizeof(Short))
        if self.shorts == NULL:
            raise MemoryError
        for i, number in enumerate(numbers):
            self.shorts[i].base = number

    def __dealloc__(self):
        PyMem_RawFree(self.shorts)
        PyMem_RawFree(self.kept)

    def read(self):
        cdef Py_ssize_t i, count = len(self.numbers)
        cdef Room* room = <Room*>PyMem_RawMalloc(sizeof(Room))
        if room == NULL:
            raise MemoryError
        with nogil:
            for i in range(count):
                self.read_one(self.shorts + i, room)
        PyMem_RawFree(room)
        return self

    # --- without the interpreter's lock ---

    cdef void read_one(self, Short* short, Room* room) noexcept nogil:
        cdef char name[NAME_BYTES]
        cdef int directory
        snprintf(name, NAME_BYTES, b"%llu", <unsigned long long>short.base)
        directory = openat(self.parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if directory < 0:
            return
        short.is_read = look_into(directory, short, room) and self.read_files(directory, short, room)
        c_close(directory)

    cdef bint read_files(self, int directory, Short* short, Room* room) noexcept nogil:
        if not short.has_segment:
            return not short.has_acks
        if not self.read_segment(directory, short, room):
            return False
        return not short.has_acks or self.read_acks(directory, short, room)

    cdef bint read_segment(self, int directory, Short* short, Room* room) noexcept nogil:
        cdef Py_ssize_t size = read_small(directory, short, b".seg", room.segment, SEGMENT_BYTES_MAX), i
        cdef Notes notes
        if size <= HEADER_BYTES or not (
            header_is_sound(room.segment, SEGMENT, 1, short.base) or header_is_sound(room.segment, SEGMENT, 2, short.base)
        ):
            return False
        short.epoch = epoch_in(room.segment)
        notes.base, notes.above, notes.count, notes.due_count = short.base, short.base - 1, 0, 0
        notes.entries, notes.dues = room.entries, room.dues
        if walk(room.segment, HEADER_BYTES, size, &notes) != size:
            return False
        short.count, short.last, short.end = notes.count, notes.above, size
        for i in range(notes.count):
            short.body_bytes += room.entries[i].body
        short.dues_bytes = notes.due_count * sizeof(DueEntry)
        short.dues_at = self.keep(room.dues, short.dues_bytes)
        return short.dues_at >= 0

    cdef bint read_acks(self, int directory, Short* short, Room* room) noexcept nogil:
        cdef Py_ssize_t size = read_small(directory, short, b".acks", room.acks, ACKS_BYTES_MAX)
        cdef Py_ssize_t at = HEADER_BYTES
        cdef uint64_t places = short.last - short.base + 1
        cdef const Mark* mark
        if size < HEADER_BYTES or (size - HEADER_BYTES) % MARK_BYTES:
            return False
        if not header_is_sound(room.acks, ACKS, ACKS_VERSION, short.base):
            return False
        while at < size:
            mark = <const Mark*>(room.acks + at)
            if not mark_is_sound(mark, short.base) or <uint64_t>mark.first + mark.count > places:
                return False
            at += MARK_BYTES
        short.marks_bytes = size - HEADER_BYTES
        short.marks_at = self.keep(room.acks + HEADER_BYTES, short.marks_bytes)
        short.entries_at = self.keep(room.entries, short.count * sizeof(IndexEntry))
        return short.marks_at >= 0 and short.entries_at >= 0

    cdef Py_ssize_t keep(self, const void* data, Py_ssize_t size) noexcept nogil:
        """Where it is in `kept` from now on; -1 if there is no memory."""
        cdef Py_ssize_t at = self.kept_bytes, room = max(2 * self.kept_room, self.kept_bytes + size)
        cdef uint8_t* moved
        if size == 0:
            return 0
        if at + size > self.kept_room:
            moved = <uint8_t*>PyMem_RawRealloc(self.kept, room)
            if moved == NULL:
                return -1
            self.kept, self.kept_room = moved, room
        memcpy(self.kept + at, data, size)
        self.kept_bytes += size
        return at

    # --- what was found ---

    def segments(self, str parent):
        """Of each directory in turn, with the path of all: its segments, which are one or none; or None, if
        it was left as it is.
        """
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(len(self.numbers)):
            if not self.shorts[i].is_read:
                found.append(None)
            elif self.shorts[i].has_segment:
                found.append([self.segment_of(self.shorts + i, f"{parent}/{self.numbers[i]}")])
            else:
                found.append([])
        return found

    cdef Segment segment_of(self, const Short* short, str directory):
        cdef Segment segment = Segment(f"{directory}/{short.base_name.decode('ascii')}", short.base)
        cdef Fates fates
        segment.enter(OnDisk.MADE)
        segment.epoch, segment.count, segment.last = short.epoch, short.count, short.last
        segment.end = segment.written = short.end
        segment.alive = segment.unread = short.count
        segment.unread_bytes = short.body_bytes
        if short.dues_bytes:
            segment.dues = PyBytes_FromStringAndSize(<char*>self.kept + short.dues_at, short.dues_bytes)
        if short.has_acks:
            segment.marks_written = HEADER_BYTES + short.marks_bytes
        if short.marks_bytes:
            fates = Fates(short.base)
            fates.add(PyBytes_FromStringAndSize(<char*>self.kept + short.marks_at, short.marks_bytes))
            segment.entries = PyBytes_FromStringAndSize(
                <char*>self.kept + short.entries_at, short.count * sizeof(IndexEntry)
            )
            segment.recover_fates(fates)
            segment.entries = b""
        return segment


cdef bint look_into(int directory, Short* short, Room* room) noexcept nogil:
    """Whether all that is in it may be there, besides whom it belongs to: the files of one segment."""
    cdef Py_ssize_t size = 1, at
    cdef const Name* found
    while size > 0:
        size = next_names(directory, room.names, NAMES_BYTES)
        at = 0
        while at < size:
            found = <const Name*>(room.names + at)
            if not note_name(found, short):
                return False
            at += found.size
    return size == 0


cdef bint note_name(const Name* found, Short* short) noexcept nogil:
    cdef const char* name = found.name
    cdef int i
    if strcmp(name, b".") == 0 or strcmp(name, b"..") == 0 or strcmp(name, MANIFEST_NAME) == 0:
        return True
    if found.kind != DT_REG or strlen(name) <= NAME_DIGITS:
        return False
    if not (short.has_segment or short.has_acks):
        short.base = 0
        for i in range(NAME_DIGITS):
            if not b"0" <= name[i] <= b"9":
                return False
            short.base = short.base * 10 + <uint64_t>(name[i] - <char>b"0")
        memcpy(short.base_name, name, NAME_DIGITS)
    elif memcmp(short.base_name, name, NAME_DIGITS) != 0:
        return False
    if strcmp(name + NAME_DIGITS, b".seg") == 0:
        short.has_segment = True
        return True
    if strcmp(name + NAME_DIGITS, b".acks") == 0:
        short.has_acks = True
        return True
    return False


cdef Py_ssize_t read_small(
    int directory, const Short* short, const char* suffix, uint8_t* data, Py_ssize_t most
) noexcept nogil:
    """All of a file, for which there is room for a byte more; -1 if it cannot be read, or is larger."""
    cdef char name[NAME_BYTES]
    cdef Py_ssize_t size = 0, more = 1
    cdef int file
    snprintf(name, NAME_BYTES, b"%s%s", short.base_name, suffix)
    file = openat(directory, name, O_RDONLY | O_CLOEXEC)
    if file < 0:
        return -1
    while more > 0 and size <= most:
        more = c_read(file, data + size, most + 1 - size)
        size += max(more, <Py_ssize_t>0)
    c_close(file)
    return size if more == 0 else -1
