cimport cython
from libc.stdint cimport int64_t, uint64_t

from warren.amqp.budget cimport Budget
from warren.broker.clock cimport Clock
from warren.broker.consumer cimport Consumer
from warren.broker.entry cimport Entry
from warren.broker.events cimport Events
from warren.broker.lane cimport Lane
from warren.broker.message cimport Message
from warren.broker.classic_queue cimport ClassicQueue

cdef int STORED
cdef int ON_ITS_WAY
cdef int AFTER_NEXT_ROUND
cdef int REFUSED
cdef Py_ssize_t GONE_AT_A_TIME_MAX
cdef long GONE_WORK
cdef int64_t NONE


cdef long MARKED_AT_A_TIME_MAX


cdef class Rulebook:
    cdef ClassicQueue queue
    cdef Budget budget
    cdef readonly Clock clock
    cdef Events events
    cdef object timetable
    cdef public object groups
    cdef public object seen
    cdef public object retry
    cdef object appointment
    cdef public object lifetime
    cdef bint draining
    cdef Py_ssize_t arrived
    cdef readonly Py_ssize_t room
    cdef bint going_on
    cdef object views
    cdef public Consumer active
    cdef list line
    cdef int64_t ttl_ms
    cdef int64_t max_length
    cdef int64_t max_bytes
    cdef bint drops_head
    cdef bint refuses_to_dlx
    cdef int64_t delivery_limit
    cdef bint single_active
    cdef bint keeps_transient

    @cython.locals(queue=ClassicQueue, unsafe=bint, lane=Lane)
    cpdef int publish(self, Message message) except -1
    @cython.locals(queue=ClassicQueue, lane=Lane, result=int)
    cpdef int publish_once(self, Message message, object seen) except -1
    @cython.locals(queue=ClassicQueue, unsafe=bint)
    cpdef int put(self, Message message) except -1
    cpdef bint is_worn(self, Entry entry)
    cpdef bint would_refuse(self, Message message) except -1
    @cython.locals(size=Py_ssize_t, queue=ClassicQueue)
    cpdef bint is_full(self, Message message) except -1
    @cython.locals(queue=ClassicQueue)
    cpdef bint is_beyond(self, Py_ssize_t more, Py_ssize_t more_bytes)
    cpdef requeue(self, Entry entry)
    cpdef bury(self, Entry entry, object reason)
    cpdef put_back(self, Entry entry)
    cpdef settled(self, Entry entry)
    cpdef drain(self)
    @cython.locals(queue=ClassicQueue, now_ms=uint64_t, lane=Lane)
    cpdef go_through(self)
    cpdef deliver(self, uint64_t now_ms)
    @cython.locals(
        is_enough=bint,
        done=uint64_t,
        queue=ClassicQueue,
        budget=Budget,
        delivered=uint64_t,
        left=long,
        most=long,
        lane=Lane,
        head=Entry,
        consumer=Consumer,
    )
    cpdef drain_lanes(self, uint64_t now_ms)
    @cython.locals(lanes=list, level=Py_ssize_t, lane=Lane)
    cpdef Lane first_lane(self)
    @cython.locals(active=Consumer)
    cpdef Consumer next_consumer(self, Py_ssize_t size)
    @cython.locals(queue=ClassicQueue, entry=Entry)
    cpdef Entry get(self, bint no_ack)
    @cython.locals(lane=Lane)
    cpdef Entry take_first(self)
    cpdef bint is_unfit(self, Entry entry) except -1
    cpdef send_away(self, Entry entry)
    @cython.locals(ttl_ms=int64_t)
    cpdef int64_t ttl_of(self, Message message)
    cpdef bint is_expired_at(self, Message message, uint64_t now_ms)
    @cython.locals(ttl_ms=int64_t)
    cpdef bint is_ttl_over(self, Message message, uint64_t now_ms)
    @cython.locals(queue=ClassicQueue, lane=Lane, entry=Entry, head=Entry)
    cpdef expire(self, uint64_t now_ms)
    @cython.locals(lane=Lane)
    cpdef drop_head(self)
    @cython.locals(due_ms=int64_t, lane=Lane, expiry_ms=int64_t, head=Entry)
    cpdef int64_t next_due(self) except? -1
