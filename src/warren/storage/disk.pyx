# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Writing and syncing, in a thread that never takes the interpreter's lock.

A Python thread would have to wait for the lock after each system call, for milliseconds while the event loop
is busy. This one gets a list of operations at a time, carries them out in their order up to the first
that fails, and says so through an eventfd, which the event loop watches.
"""

import os
import threading

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.errno cimport EINTR, EIO, ENOENT, errno as c_errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport rename
from libc.stdlib cimport free, malloc

from warren.broker.message cimport Message
from warren.storage.checksum cimport crc32c, crc32c_on
from warren.storage.format cimport JOURNAL_CHECKED_FROM, RECORD_CHECKED_FROM, RecordHead

cdef extern from "unistd.h" nogil:
    Py_ssize_t c_read "read"(int file, void* data, size_t size)
    Py_ssize_t c_write "write"(int file, const void* data, size_t size)
    Py_ssize_t pwrite(int file, const void* data, size_t size, int64_t offset)
    int fdatasync(int file)
    int fsync(int file)

cdef extern from *:
    """
    #include <sys/syscall.h>
    #include <unistd.h>
    static int warren_syncfs(int file) { return (int)syscall(SYS_syncfs, file); }
    """
    int syncfs "warren_syncfs"(int file) nogil

cdef extern from * nogil:
    """
    #define warren_publish(flag) __atomic_store_n(&(flag), 1, __ATOMIC_RELEASE)
    #define warren_is_published(flag) __atomic_load_n(&(flag), __ATOMIC_ACQUIRE)
    """
    void publish "warren_publish"(bint flag)
    bint is_published "warren_is_published"(bint flag)

cdef extern from "sys/uio.h" nogil:
    int RWF_DSYNC
    Py_ssize_t pwritev2(int file, const iovec* parts, int count, int64_t offset, int flags)

cdef enum:
    BUFFER_BYTES_MIN = 16 * 1024
    PARTS_A_CALL_MAX = 1024     # what Linux takes at once

WRITE, SYNC, SYNC_ALL, SYNC_DIRECTORY, RENAME, WRITE_SAFELY = range(6)

cdef enum:
    C_WRITE = 0
    C_SYNC = 1
    C_SYNC_ALL = 2
    C_SYNC_DIRECTORY = 3
    C_RENAME = 4
    C_WRITE_SAFELY = 5


cdef Py_ssize_t buffers_bytes = 0


def allocated_bytes():
    """By all buffers, whatever they hold."""
    return buffers_bytes


cdef class Buffer:
    """Bytes on their way to a file, or from it. The body of a large record at their end is not copied: it is written from where
    it is, and the record's checksum is worked out then, by the disk's thread.
    """

    def __dealloc__(self):
        global buffers_bytes
        buffers_bytes -= self.capacity
        PyMem_RawFree(self.data)

    def __len__(self):
        return self.total()

    cdef Py_ssize_t total(self) noexcept:
        return self.size if self.large is None else self.size + PyBytes_GET_SIZE(self.large.body) + self.padding

    cdef int attach(self, Message large, Py_ssize_t at, Py_ssize_t padding) except -1:
        """The body of this message, and zeros, follow what is here, of which the record's head begins at `at`.
        Nothing can be added behind it.
        """
        self.large, self.large_at, self.padding = large, at, padding
        return 0

    cdef uint8_t* room(self, Py_ssize_t size) except NULL:
        """Where the next `size` bytes go, which count as used from now on."""
        global buffers_bytes
        cdef Py_ssize_t wanted = self.size + size
        cdef uint8_t* moved
        assert self.large is None, "a large record is the last one"
        if wanted > self.capacity:
            wanted = max(wanted, max(2 * self.capacity, <Py_ssize_t>BUFFER_BYTES_MIN))
            moved = <uint8_t*>PyMem_RawRealloc(self.data, wanted)
            if moved == NULL:
                raise MemoryError
            self.data = moved
            buffers_bytes += wanted - self.capacity
            self.capacity = wanted
        self.size += size
        return self.data + self.size - size

    def clear(self):
        self.size = 0
        self.large = None

    def tobytes(self):
        cdef bytes body
        if self.large is None:
            return (<char*>self.data)[:self.size]
        body = self.large.body
        seal(self.data + self.large_at, self.data + self.size, <const uint8_t*>PyBytes_AS_STRING(body), len(body))
        return (<char*>self.data)[:self.size] + body + bytes(self.padding)

    @property
    def allocated(self):
        return self.capacity


cdef class Operation:
    """One thing to do: WRITE data (bytes or a Buffer) into an open file at an offset; SYNC the file, or
    SYNC_ALL of its file system; SYNC_DIRECTORY for the names in it; RENAME path to target. WRITE_SAFELY is
    for a record of the journal: put its checksum into data, a Buffer, write that and the `parts` that follow it, and
    sync it.
    """

    def __init__(self, kind, *, file=-1, data=None, offset=0, path=None, target=None, parts=()):
        self.kind = kind
        self.file = file
        self.data = data
        self.offset = offset
        self.path = path
        self.target = target
        self.parts = parts

    def tobytes(self):
        """All that it writes."""
        cdef Buffer head
        if self.kind != C_WRITE_SAFELY:
            return self.data.tobytes() if isinstance(self.data, Buffer) else self.data
        head = self.data
        behind = b"".join([part.tobytes() for part in self.parts])
        seal_record(head.data, head.size, behind)
        return head.tobytes() + behind


cdef void seal(uint8_t* head, const uint8_t* end, const uint8_t* body, Py_ssize_t size) noexcept nogil:
    """Write the checksum of a record whose body lies elsewhere; its head and what is before the body end at `end`."""
    cdef uint32_t crc = crc32c(head + RECORD_CHECKED_FROM, end - head - RECORD_CHECKED_FROM)
    (<RecordHead*>head).crc = crc32c_on(crc, body, size)


cdef int write_all(int file, const uint8_t* data, Py_ssize_t size, int64_t offset) noexcept nogil:
    cdef Py_ssize_t at = 0, done
    while at < size:
        done = pwrite(file, data + at, size - at, offset + at)
        if done <= 0:
            if done < 0 and c_errno == EINTR:
                continue
            return c_errno if done < 0 else EIO
        at += done
    return 0


cdef int write(const Step* step) noexcept nogil:
    """The bytes of a step, and then the large body behind them, if there is one."""
    cdef uint64_t zeros = 0
    cdef int error
    if step.body != NULL:
        seal(step.head, step.data + step.size, step.body, step.body_size)
    error = write_all(step.file, step.data, step.size, step.offset)
    if error == 0 and step.body != NULL:
        error = write_all(step.file, step.body, step.body_size, step.offset + step.size)
        if error == 0:
            error = write_all(
                step.file, <const uint8_t*>&zeros, step.padding, step.offset + step.size + step.body_size
            )
    return error


cdef void seal_record(uint8_t* head, Py_ssize_t size, bytes behind):
    """The same that `write_safely` does to it."""
    cdef uint32_t crc = crc32c(head + JOURNAL_CHECKED_FROM, size - JOURNAL_CHECKED_FROM)
    (<uint32_t*>head)[1] = crc32c_on(crc, <const uint8_t*>PyBytes_AS_STRING(behind), len(behind))


cdef int write_safely(const Step* step) noexcept nogil:
    """In one call, if the system can; else piece by piece."""
    cdef uint32_t crc = crc32c(step.head + JOURNAL_CHECKED_FROM, step.size - JOURNAL_CHECKED_FROM)
    cdef Py_ssize_t i, size = step.size
    cdef int64_t offset = step.offset
    cdef int error
    for i in range(1, step.part_count):
        crc = crc32c_on(crc, <const uint8_t*>step.parts[i].iov_base, step.parts[i].iov_len)
        size += step.parts[i].iov_len
    (<uint32_t*>step.head)[1] = crc
    if step.part_count <= PARTS_A_CALL_MAX:
        if pwritev2(step.file, step.parts, step.part_count, step.offset, RWF_DSYNC) == size:
            return 0
    for i in range(step.part_count):
        error = write_all(
            step.file, <const uint8_t*>step.parts[i].iov_base, step.parts[i].iov_len, offset
        )
        if error != 0:
            return error
        offset += step.parts[i].iov_len
    return c_errno if fdatasync(step.file) < 0 else 0


cdef inline int carry_out(const Step* step) noexcept nogil:
    """0, or the error's number."""
    cdef int result = 0
    if step.kind == C_WRITE:
        return write(step)
    elif step.kind == C_WRITE_SAFELY:
        return write_safely(step)
    elif step.kind == C_SYNC:
        result = fdatasync(step.file)
    elif step.kind == C_SYNC_ALL:
        result = syncfs(step.file)
    elif step.kind == C_SYNC_DIRECTORY:
        result = fsync(step.file)
    elif step.kind == C_RENAME:
        result = rename(step.path, step.target)
        if result < 0 and c_errno == ENOENT:
            result = 0  # tried again, and done already
    return c_errno if result < 0 else 0


def write_at_once(int file, bytes data, int64_t offset):
    """Without letting go of the interpreter's lock: for what is so small that another thread which takes the lock
    meanwhile would keep us longer.
    """
    cdef int error = write_all(file, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), offset)
    if error != 0:
        raise OSError(error, os.strerror(error))


def sync_file_system(int file):
    """At once: all that was written to the file system that this file is in."""
    cdef int result
    with nogil:
        result = syncfs(file)
    if result < 0:
        raise OSError(c_errno, os.strerror(c_errno))


cdef class Disk:
    """`done` becomes readable when what was submitted is over; once `has_result()`, `result` tells how it
    went.
    """

    def __cinit__(self):
        self.wake = os.eventfd(0, os.EFD_CLOEXEC)
        self.done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.thread = threading.Thread(target=self._run, name="warren-disk", daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        """End when what is under way is done; also if it was never started."""
        self.stopping = True
        if self.thread.ident is not None:
            os.eventfd_write(self.wake, 1)
            self.thread.join()
        os.close(self.wake)
        os.close(self.done)

    def submit(self, list operations):
        """Carry these out, one after the other; only when those before are over."""
        cdef Operation operation
        cdef uint64_t one = 1
        cdef Py_ssize_t i
        assert self.operations is None, "one list at a time"
        self.steps = <Step*>malloc(max(1, len(operations)) * sizeof(Step))
        if self.steps == NULL:
            raise MemoryError
        self.operations = operations
        self.count = len(operations)
        for i, operation in enumerate(operations):
            self.steps[i] = as_step(operation)
        c_write(self.wake, &one, 8)

    def has_result(self):
        """Whether what was submitted is over. A moment before, `done` may be readable already."""
        return is_published(self.is_over)

    def result(self):
        """None if all went well, else the error; to be asked once `has_result()`."""
        cdef Py_ssize_t i
        cdef uint64_t number
        c_read(self.done, &number, 8)
        for i in range(self.count):
            free(self.steps[i].parts)
        free(self.steps)
        self.steps = NULL
        self.operations = None
        self.is_over = False
        return OSError(self.error, os.strerror(self.error)) if self.error else None

    def _run(self):
        with nogil:
            self.work()

    cdef void work(self) noexcept nogil:
        cdef uint64_t number
        cdef Py_ssize_t i
        while True:
            if c_read(self.wake, &number, 8) != 8:
                continue
            if self.stopping:
                return
            self.error = 0
            for i in range(self.count):
                self.error = carry_out(&self.steps[i])
                if self.error != 0:
                    break
            number = 1
            c_write(self.done, &number, 8)
            publish(self.is_over)


cdef Step as_step(Operation operation):
    cdef Step step
    cdef Buffer buffer
    cdef bytes data
    step.kind, step.file, step.offset = operation.kind, operation.file, operation.offset
    step.data, step.size, step.path, step.target = NULL, 0, NULL, NULL
    step.head, step.body, step.body_size, step.padding = NULL, NULL, 0, 0
    step.parts, step.part_count = NULL, 0
    if operation.kind == C_WRITE_SAFELY:
        gather_parts(&step, operation)
    elif isinstance(operation.data, Buffer):
        buffer = operation.data
        step.data, step.size = buffer.data, buffer.size
        if buffer.large is not None:
            step.head = buffer.data + buffer.large_at
            step.body = <const uint8_t*>PyBytes_AS_STRING(buffer.large.body)
            step.body_size, step.padding = PyBytes_GET_SIZE(buffer.large.body), buffer.padding
    elif operation.data is not None:
        data = operation.data
        step.data, step.size = <const uint8_t*><const char*>data, len(data)
    if operation.path is not None:
        step.path, step.target = operation.path, operation.target
    return step


cdef int gather_parts(Step* step, Operation operation) except -1:
    cdef Buffer head = operation.data, part
    cdef Py_ssize_t i
    step.head, step.size = head.data, head.size
    step.part_count = 1 + len(operation.parts)
    step.parts = <iovec*>malloc(step.part_count * sizeof(iovec))
    if step.parts == NULL:
        raise MemoryError
    step.parts[0].iov_base, step.parts[0].iov_len = head.data, head.size
    for i, part in enumerate(operation.parts, 1):
        assert part.large is None, "large bodies are not journaled"
        step.parts[i].iov_base, step.parts[i].iov_len = part.data, part.size
    return 0
