cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from warren.amqp.budget cimport Budget
from warren.amqp.reader cimport ContentReader
from warren.amqp.writer cimport Output
from warren.broker.clock cimport Clock
from warren.broker.entry cimport Entry
from warren.broker.events cimport Events
from warren.broker.message cimport Message, enqueue_work, publish_message
from warren.broker.queue cimport Queue
from warren.broker.tally cimport Tally
from warren.broker.version cimport Version
from warren.session.confirms cimport Confirms
from warren.session.consumer cimport ChannelConsumer
from warren.session.deliveries cimport Deliveries

cdef long RESOLVE_WORK
cdef long EXAMINE_WORK
cdef long TAKE_KEYS_WORK
cdef long SPECIAL_WORK
cdef long WORK_AT_ONCE_MAX
cdef long WIDE_WORK_AT_ONCE_MAX
cdef Py_ssize_t QUEUES_A_STEP

cdef bint is_much(long work, Py_ssize_t queues) noexcept


cdef class Channel(ContentReader):
    cdef public object connection
    cdef readonly object origin
    cdef public object vhost
    cdef public Output output
    cdef readonly Tally tally
    cdef Tally totals
    cdef public object history
    cdef public Deliveries deliveries
    cdef public dict consumers
    cdef public str last_queue
    cdef public Py_ssize_t prefetch_count
    cdef public Py_ssize_t prefetch_size
    cdef public object transaction
    cdef public object reply_consumer
    cdef readonly Events events
    # the route and the properties of the last message; the next one probably has the same
    cdef Version version
    cdef long route_version
    cdef list queues
    cdef Tally exchange_tally
    cdef bint by_properties
    cdef object seen
    cdef bytes message_properties
    cdef bint persistent
    cdef Clock clock
    cdef int64_t expiration_ms
    cdef uint8_t priority
    cdef bint special
    cdef readonly list extra_keys
    cdef bint extra_keys_checked
    cdef public Confirms confirms
    cdef public object answer_awaits
    # since the last end of a batch
    cdef public bint has_published
    cdef list reached
    cdef list routes
    cdef Budget budget
    cdef public uint64_t look_again_ms
    cdef public object chores
    cdef public list withheld

    @cython.locals(message=Message)
    cpdef int published(self, bytes body) except -1
    cpdef int acked(self, uint64_t delivery_tag, bint multiple) except -1
    @cython.locals(queue=Queue, outcome=int, work=long)
    cpdef enqueue(self, Message message, list queues, bint mandatory)
    cpdef has_enqueued(self, Message message, list queues, bint mandatory)
    cdef void count_published(self, Py_ssize_t routed) noexcept
    @cython.locals(entry=Entry)
    cpdef settle(self, uint64_t delivery_tag, bint multiple)
    @cython.locals(consumer=ChannelConsumer, queue=Queue)
    cpdef release(self, Entry entry)
