"""What belongs to one queue about a message: its position there, and how often it was delivered. One whose position
is 0 is only looked at: the message itself stays in the queue.

This is a .pyx for the sake of its memory: a queue may hold millions of entries, which the garbage
collector must not walk through, and a busy one makes and drops millions a second. Whoever takes an
entry out of a list unlinks it; that keeps entries from forming cycles that nobody would collect.
"""

cimport cython

from warren.broker.message cimport Message


@cython.final
@cython.no_gc
cdef class Entry:
    def __init__(self, Message message, queue, position):
        self.message = message
        self.queue = queue
        self.position = position
        self.size = <uint32_t>len(message.body)
