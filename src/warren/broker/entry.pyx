"""An entry: a message in one queue, with its position there and how often it was delivered. An entry with
position 0 was made for a consumer that browses; the message itself stays in the queue.

This is a .pyx because of memory: a queue may hold millions of entries, which the garbage collector must not
walk through, and a busy queue makes and drops millions a second. The collector does not know entries, so
whoever takes an entry out of a list unlinks it: cycles of entries would never be freed.
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

    def __repr__(self):
        return f"<Entry {self.position} of {getattr(self.queue, 'name', None)!r}: {self.message!r}>"
