# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What an ack file says is done with, as runs of positions. For whoever looks at a queue from outside while it is
in use: most of the work is done without the interpreter's lock, which the event loop would wait for.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memset

from warren.storage.format cimport HEAD_BYTES, MARK_BYTES, Mark, mark_is_sound

cdef uint32_t ACKED = 0xFFFFFFFF


def acked_runs(const uint8_t[::1] data, uint64_t base, uint32_t places):
    """Runs [first, count] of the first `places` positions, counted from the base, by the sound marks of a file."""
    cdef uint8_t* done
    if data.shape[0] < HEAD_BYTES + MARK_BYTES or places == 0:
        return []
    done = <uint8_t*>calloc(places + 1, 1)
    if done == NULL:
        raise MemoryError
    try:
        with nogil:
            mark_done(&data[0], data.shape[0], base, done, places)
        return runs_in(done, places)
    finally:
        free(done)


cdef void mark_done(const uint8_t* data, Py_ssize_t size, uint64_t base, uint8_t* done, uint32_t places) noexcept nogil:
    cdef Py_ssize_t at = HEAD_BYTES
    cdef const Mark* mark
    while at + MARK_BYTES <= size:
        mark = <const Mark*>(data + at)
        if mark.deliveries == ACKED and mark.first < places and mark_is_sound(mark, base):
            memset(done + mark.first, 1, min(mark.count, places - mark.first))
        at += MARK_BYTES


cdef list runs_in(const uint8_t* done, uint32_t places):
    """`done` has a zero behind its end."""
    cdef list runs = []
    cdef const uint8_t* end = done + places
    cdef const uint8_t* at = done
    cdef const uint8_t* stop
    while True:
        at = <const uint8_t*>memchr(at, 1, end - at)
        if at == NULL:
            return runs
        stop = <const uint8_t*>memchr(at, 0, end + 1 - at)
        runs.append([at - done, stop - at])
        at = stop
