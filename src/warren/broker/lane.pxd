cimport cython
from libc.stdint cimport int64_t, uint64_t

from warren.amqp.budget cimport Budget
from warren.broker.entry cimport Entry
from warren.broker.entry_list cimport EntryList
from warren.broker.expiry cimport Expiry
from warren.broker.memory cimport Memory
from warren.broker.message cimport Message
from warren.broker.pack cimport Pack
from warren.broker.store cimport MessageLog

cdef uint64_t IN_PACK
cdef uint64_t IN_OVERFLOW
cdef uint64_t LOCATION_MASK
cdef uint64_t NOTHING_TO_READ


@cython.final
cdef class Lane:
    cdef readonly object queue
    cdef Memory memory
    cdef Budget budget
    cdef object open_overflow
    cdef readonly int level
    cdef readonly EntryList ready
    cdef public Py_ssize_t ready_max
    cdef public Py_ssize_t ready_bytes_max
    cdef readonly Py_ssize_t share
    cdef readonly bint consumed
    cdef readonly Py_ssize_t loan
    cdef readonly bint keeps_all
    cdef readonly EntryList strays
    cdef readonly Py_ssize_t stored_strays
    cdef readonly MessageLog log
    cdef readonly Pack packed
    cdef readonly MessageLog overflow
    cdef readonly uint64_t position
    cdef readonly uint64_t released
    cdef readonly object gate
    cdef readonly Expiry expiry

    @cython.locals(waits=bint, log=MessageLog, location=uint64_t)
    cpdef bint put(self, Message message) except -1
    @cython.locals(full=bint)
    cpdef uint64_t put_behind(self, Message message) except? 0
    cpdef expires(self, Message message, uint64_t location, bint waits, uint64_t position)
    cpdef bint has_room(self, Py_ssize_t size) except -1
    @cython.locals(more=Py_ssize_t)
    cpdef bint borrow(self) except -1
    cpdef rest(self)
    cpdef bint holds_too_much(self)
    cpdef bint is_over(self)
    cpdef Py_ssize_t ready_bytes(self)
    @cython.locals(given=Py_ssize_t)
    cpdef Py_ssize_t give_up(self, Py_ssize_t most) except -1
    @cython.locals(entry=Entry, before=Entry, given=Py_ssize_t, passed=Py_ssize_t)
    cdef Py_ssize_t give_up_strays(self, Py_ssize_t most) except -1
    @cython.locals(entry=Entry)
    cdef give_up_last(self)
    cdef give_back(self, Entry entry)
    @cython.locals(passed=Py_ssize_t)
    cpdef put_back(self, Entry entry)
    cpdef bint has_behind(self)
    @cython.locals(head=Entry)
    cpdef bint has_any(self)
    @cython.locals(head=Entry)
    cpdef Entry first(self)
    cpdef uint64_t last_position(self)
    @cython.locals(tail=Entry)
    cpdef bint may_read_on(self)
    cpdef Entry pop(self)
    cpdef remove(self, Entry entry)
    cdef take_stray(self, Entry entry)
    cpdef bint is_ready(self, Entry entry)
    @cython.locals(following=Entry)
    cpdef Entry next_ready(self, Entry last, uint64_t position)
    @cython.locals(following=Entry)
    cpdef Entry next_stray(self, Entry last, uint64_t position)
    cdef Entry first_beyond(self, EntryList entries, uint64_t position, Entry near)
    cpdef bint is_stray(self, Entry entry)
    cpdef bint is_among_strays(self, Entry entry)
    @cython.locals(
        head=Entry,
        stored=uint64_t,
        aside=uint64_t,
        stray=uint64_t,
        more=EntryList,
        most=Py_ssize_t,
        most_bytes=Py_ssize_t,
    )
    cpdef read_on(self)
    cpdef uint64_t next_aside(self) except? 0
    @cython.locals(room=Py_ssize_t, position=uint64_t)
    cpdef unpack(self, EntryList more, uint64_t before)
    @cython.locals(log=MessageLog, message=Message, waits=bint)
    cpdef Entry take_out(self, uint64_t position, uint64_t location, uint64_t time_ms)
    @cython.locals(entry=Entry)
    cpdef Entry made(self, Message message, uint64_t position, uint64_t location)
    @cython.locals(expiry=Expiry, entry=Entry, position=uint64_t)
    cpdef Entry take_expired(self, uint64_t now_ms)
    cpdef uint64_t next_behind(self) except? 0
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t length(self)
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t body_bytes(self)
    cpdef note_expiries(self)
    cpdef int64_t next_expiry(self) except? -1
    cpdef note_delivered(self, Entry entry)
    cpdef done(self, Entry entry)
