# compiled because every turn passes through it
cimport cython
from libc.stdint cimport uint16_t

from warren.amqp.reader cimport FrameReader
from warren.amqp.writer cimport Output
from warren.broker.node cimport Node
from warren.broker.tally cimport Tally
from warren.session.channel cimport Channel


cdef class Connection(FrameReader):
    cdef object __weakref__
    cdef public Node node
    cdef readonly object id
    cdef public object link
    cdef public str name
    cdef readonly object peer
    cdef readonly object connected_ms
    cdef public str mechanism
    cdef public object state
    cdef public Output output
    cdef public object liveness
    cdef public dict client_properties
    cdef public str user_name
    cdef public str vhost_name
    cdef public Py_ssize_t channel_max
    cdef public list channels_that_published
    cdef public object held_by
    cdef public bint blocked
    cdef public bint in_line
    cdef public set not_reading_because
    cdef public set not_delivering_because
    cdef public object meter
    cdef readonly Tally closed_tally
    cdef public object history
    cdef public tuple handling
    cdef public tuple handled
    cdef public str close_reason
    cdef object expiry
    # from the login on
    cdef public object identity
    # from connection.open on
    cdef public object vhost
    cdef public object access

    cpdef int on_greeting(self, bytes greeting) except -1
    cpdef int on_method(self, uint16_t number, bytes payload) except -1
    cpdef int on_error(self, uint16_t number, error) except -1
    cpdef int on_batch_begin(self) except -1
    @cython.locals(channel=Channel, channels=list)
    cpdef int on_batch_end(self) except -1
    cpdef int on_tired(self) except -1
    cpdef int on_deferred(self) except -1
    cpdef int on_blocked_publish(self) except -1
    @cython.locals(chunks=list)
    cpdef flush(self)
    cpdef _yield_to_consumers(self, queues)
    @cython.locals(channel=Channel)
    cdef _yield_to_disk(self, list channels)
