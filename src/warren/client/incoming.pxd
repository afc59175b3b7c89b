"""Frames that a broker sends to a client of ours, in raw memory: their numbers, and what all are checked for.

Every message passes these functions, so they are inline, and what they raise is imported when it is raised.
"""

from libc.stdint cimport uint8_t, uint32_t

from warren.amqp.wire cimport (
    FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, FRAME_OVERHEAD, get32,
)

cdef enum:
    BASIC_DELIVER = 60 << 16 | 60
    BASIC_NACK = 60 << 16 | 120
    METHOD_ID_SIZE = 4
    ACK_SIZE = 13                 # method id, delivery tag, bits
    HEADER_SIZE = 12              # class, weight, body size


cdef inline Py_ssize_t frame_size(const uint8_t* frame, uint32_t payload_bytes_max) except -1:
    """How many bytes a frame has, by its head."""
    cdef uint32_t size = get32(frame + 3)
    if frame[0] not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT):
        refuse("the server does not speak AMQP 0-9-1")
    if size > payload_bytes_max:
        refuse(f"the broker sent a frame of {size} bytes, more than was agreed")
    return <Py_ssize_t>size + FRAME_OVERHEAD


cdef inline int check_end(const uint8_t* payload, Py_ssize_t size) except -1:
    if payload[size] != FRAME_END:
        refuse("the broker sent a frame without its end octet")
    return 0


cdef inline int check(bint well_formed) except -1:
    if not well_formed:
        refuse("the broker sent a malformed frame")
    return 0


cdef inline int refuse(str reason) except -1:
    from warren.client.errors import ClientError
    raise ClientError(reason)
