# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where Python keeps small objects: arenas of a megabyte, which it maps and unmaps as they fill and empty.

A queue that grows by a million messages a second touches new pages all the time, and to have the kernel
provide them one by one costs as much as all else that happens to a message. So arenas are asked for
with all their pages at once, and some that are empty are kept for the next burst, until nobody has wanted
them for a while.

Python divides an arena into pools of 16 KiB, each for objects of one size, and each begins with the number of its
objects. An arena stays as long as one pool has one object, so what of it is free is counted by those numbers. They are
only read, and not believed if there are more than Python knows of.

Python takes the memory for the frames of its threads from here as well, in pieces of other sizes. Those are never kept:
one that was handed out as an arena would be too small for it.

Watched by the benchmark `publish only`: 1.3 times the messages a second.
"""

import sys

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport realloc

cdef extern from "Python.h":
    ctypedef struct PyObjectArenaAllocator:
        void* ctx
        void* (*alloc)(void* ctx, size_t size) noexcept
        void (*free)(void* ctx, void* address, size_t size) noexcept
    void PyObject_SetArenaAllocator(PyObjectArenaAllocator* allocator)

cdef extern from *:
    """
    #include <pthread.h>
    static pthread_mutex_t warren_arenas_lock = PTHREAD_MUTEX_INITIALIZER;
    #define warren_lock_arenas() pthread_mutex_lock(&warren_arenas_lock)
    #define warren_unlock_arenas() pthread_mutex_unlock(&warren_arenas_lock)
    """
    void lock "warren_lock_arenas"() noexcept nogil
    void unlock "warren_unlock_arenas"() noexcept nogil

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
    ARENA_BYTES = 1 << 20       # what Python asks for besides, frames of its threads, is no arena
    KEPT_MAX = 128
    POOL_BYTES = 16 * 1024
    USED_ROOM_MIN = 256

cdef void* kept[KEPT_MAX]
cdef int kept_count = 0
cdef int kept_least = 0     # the lowest of that since it was last asked for
cdef void** used = NULL     # the arenas that Python has
cdef size_t used_count = 0
cdef size_t used_room = 0
cdef uint64_t pools_free = 0
cdef uint64_t objects = 0    # in all pools


cdef void* take(void* ctx, size_t size) noexcept:
    cdef void* address = take_kept() if size == ARENA_BYTES else NULL
    if address == NULL:
        address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)
        if address == MAP_FAILED:
            return NULL
    if size == ARENA_BYTES:
        note(address)
    return address


cdef void* take_kept() noexcept nogil:
    """NULL if there is none. Under a lock of our own: the thread that unmaps has not the interpreter's."""
    global kept_count, kept_least
    cdef void* address = NULL
    lock()
    if kept_count:
        kept_count -= 1
        kept_least = min(kept_least, kept_count)
        address = kept[kept_count]
    unlock()
    return address


cdef void note(void* address) noexcept:
    """Python has it now. If there is no memory for the note, it counts for nothing."""
    global used, used_count, used_room
    cdef void** more
    if used_count == used_room:
        more = <void**>realloc(used, max(<size_t>USED_ROOM_MIN, 2 * used_room) * sizeof(void*))
        if more == NULL:
            return
        used, used_room = more, max(<size_t>USED_ROOM_MIN, 2 * used_room)
    used[used_count] = address
    used_count += 1


cdef void give(void* ctx, void* address, size_t size) noexcept:
    global kept_count, used_count
    cdef size_t i = used_count if size == ARENA_BYTES else 0
    while i:
        i -= 1
        if used[i] == address:
            used_count -= 1
            used[i] = used[used_count]
            break
    lock()
    if kept_count < KEPT_MAX and size == ARENA_BYTES:
        kept[kept_count] = address
        kept_count += 1
        address = NULL
    unlock()
    if address != NULL:
        munmap(address, size)


def install():
    """From now on this process gets its arenas here. For one that is all broker, not for an embedding one."""
    cdef PyObjectArenaAllocator allocator
    allocator.ctx = NULL
    allocator.alloc = take
    allocator.free = give
    PyObject_SetArenaAllocator(&allocator)


def used_bytes():
    """Of arenas that Python has, full or not."""
    return used_count * ARENA_BYTES


def free_bytes():
    """Of pools without an object, in arenas that Python has. It looks at each pool: 6 ms for a GB."""
    look_at_pools()
    return pools_free * POOL_BYTES if objects <= sys.getallocatedblocks() else 0


cdef void look_at_pools() noexcept:
    global pools_free, objects
    cdef size_t i
    cdef uint8_t* pool
    cdef uint8_t* end
    pools_free = objects = 0
    for i in range(used_count):
        pool = <uint8_t*>((<uintptr_t>used[i] + POOL_BYTES - 1) & ~<uintptr_t>(POOL_BYTES - 1))
        end = <uint8_t*>used[i] + ARENA_BYTES
        while pool + POOL_BYTES <= end:
            objects += (<uint32_t*>pool)[0]
            pools_free += (<uint32_t*>pool)[0] == 0
            pool += POOL_BYTES


def kept_bytes():
    """Of arenas that are empty, and kept."""
    return kept_count * ARENA_BYTES


def idle_bytes():
    """How many of the kept bytes nobody has wanted since this was asked last."""
    global kept_least
    lock()
    idle, kept_least = kept_least * ARENA_BYTES, kept_count
    unlock()
    return idle


def give_back(uint64_t most):
    """Let the system have what is kept, up to so many bytes and one arena. It lets other threads go on. How many
    bytes that was.
    """
    cdef uint64_t given = 0
    cdef void* address
    with nogil:
        while given < most:
            address = take_kept()
            if address == NULL:
                break
            munmap(address, ARENA_BYTES)
            given += ARENA_BYTES
    return given
