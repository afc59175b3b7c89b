cimport cython
from libc.stdint cimport uint16_t, uint64_t

from warren.amqp.writer cimport Output
from warren.broker.tally cimport Tally

cdef int STORED
cdef int AFTER_NEXT_ROUND
cdef int REFUSED


@cython.final
cdef class Awaited:
    cdef uint64_t published
    cdef object safety
    cdef uint64_t number
    cdef bint longer
    cdef list elsewhere


@cython.final
cdef class Rounds:
    cdef Confirms confirms
    cdef object safety
    cdef uint64_t asked_for
    cdef uint64_t over


@cython.final
cdef class Confirms:
    cdef Output output
    cdef uint16_t channel
    cdef Tally tally
    cdef Tally totals
    cdef public bint on
    cdef public uint64_t published
    cdef readonly uint64_t confirmed
    cdef public uint64_t refusals
    cdef object refused
    cdef public object in_vain
    cdef public bint unsafe
    cdef public bint unsafe_longer
    cdef readonly object safety
    cdef dict elsewhere
    cdef object awaited
    cdef list longer
    cdef dict rounds

    cpdef note(self, int outcome, safety)
    @cython.locals(last=Awaited)
    cpdef end_batch(self)
    @cython.locals(last=Awaited, longer=bint)
    cdef _await_rounds(self)
    @cython.locals(first=Awaited)
    cdef _await_several(self, dict unsafe)
    @cython.locals(awaited=Awaited)
    cdef Awaited _await(self, object safety, bint longer)
    @cython.locals(awaited=Awaited)
    cdef first_is_over(self, Rounds rounds)
    @cython.locals(rounds=Rounds, gathering=uint64_t)
    cdef _ask(self, safety)
    @cython.locals(safe=uint64_t, head=Awaited)
    cdef confirm_safe(self, Rounds rounds)
    @cython.locals(awaited=Awaited, other=Awaited)
    cpdef bint waits_for(self, object safety) except -1
    @cython.locals(rounds=Rounds, other=Awaited, is_safe=bint)
    cdef bint _is_safe(self, Awaited awaited) except -1
    @cython.locals(confirmed=uint64_t)
    cpdef _ack_up_to(self, uint64_t count)


cdef bint _lasts(Awaited awaited, bint longer) except -1
