# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""An allocator for Python's arenas, the pieces of 1 MiB in which it keeps small objects. Python maps and unmaps arenas
as they fill and empty.

A queue that grows by a million messages a second touches new pages all the time, and to have the kernel provide them
one by one costs as much as everything else that happens to a message. So an arena is mapped with all its pages at
once, and some empty arenas are kept for the next burst, until they were not needed for a while.

Python divides an arena into pools of 16 KiB, each for objects of one size. A pool begins with the number of its
objects. Python gives an arena back only when no pool has an object, so free memory in arenas is found by reading these
numbers. If they add up to more objects than Python says there are, we misread them, and count nothing as free.

Python takes the memory for the frames of its threads from here as well, in pieces of other sizes. Those are never kept:
handed out as an arena later, such a piece would be too small.

The scenario `publish-only-16B` of `benchmarks/compare.py` watches this: 1.3 times the messages a second.
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
    ARENA_BYTES = 1 << 20       # a request of another size is not for an arena
    KEPT_MAX = 128              # arenas
    POOL_BYTES = 16 * 1024
    USED_ROOM_MIN = 256         # arenas

cdef void* kept[KEPT_MAX]       # empty arenas, for the next burst
cdef int kept_count = 0
cdef int kept_least = 0         # the lowest value of `kept_count` since `idle_bytes` was last called
cdef void** used = NULL         # the arenas that Python has
cdef size_t used_count = 0
cdef size_t used_room = 0       # for how many there is room in `used`
cdef uint64_t pools_free = 0    # pools without objects, when they were last counted
cdef uint64_t objects = 0       # objects in all pools at that time


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
    """A kept arena, or NULL. Under a lock of our own, since `give_back` runs without the interpreter's."""
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
    """Note that Python has this arena. If there is no memory for the note, the arena is not counted."""
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
    """From now on Python takes its arenas from here. For a process that is all broker, not for an embedding one."""
    cdef PyObjectArenaAllocator allocator
    allocator.ctx = NULL
    allocator.alloc = take
    allocator.free = give
    PyObject_SetArenaAllocator(&allocator)


def used_bytes():
    """Bytes of the arenas that Python has, full or not."""
    return used_count * ARENA_BYTES


def free_bytes():
    """Bytes of the pools without objects, in the arenas that Python has. Looks at each pool: 6 ms for a GB."""
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
    """Bytes of empty arenas that are kept."""
    return kept_count * ARENA_BYTES


def idle_bytes():
    """How many of the kept bytes were not needed at any time since the last call."""
    global kept_least
    lock()
    idle, kept_least = kept_least * ARENA_BYTES, kept_count
    unlock()
    return idle


def give_back(uint64_t most):
    """Give kept arenas back to the system until there were `most` bytes: at most one arena more. Other threads go on
    meanwhile. Returns how many bytes were given back.
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
