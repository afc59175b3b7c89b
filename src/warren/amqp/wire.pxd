"""Big-endian numbers in raw memory, and the octets of a frame."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    FRAME_METHOD = 1
    FRAME_HEADER = 2
    FRAME_BODY = 3
    FRAME_HEARTBEAT = 8
    FRAME_END = 0xCE
    FRAME_HEAD_SIZE = 7   # type, channel, size
    FRAME_OVERHEAD = 8    # the head and the end octet

    CLASS_BASIC = 60
    BASIC_PUBLISH = 60 << 16 | 40
    BASIC_ACK = 60 << 16 | 80


cdef inline uint16_t get16(const uint8_t* p) noexcept nogil:
    return <uint16_t>(p[0] << 8 | p[1])


cdef inline uint32_t get32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline uint64_t get64(const uint8_t* p) noexcept nogil:
    return <uint64_t>get32(p) << 32 | get32(p + 4)


cdef inline void put16(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>(v >> 8)
    p[1] = <uint8_t>v


cdef inline void put32(uint8_t* p, uint32_t v) noexcept nogil:
    put16(p, v >> 16)
    put16(p + 2, v)


cdef inline void put64(uint8_t* p, uint64_t v) noexcept nogil:
    put32(p, <uint32_t>(v >> 32))
    put32(p + 4, <uint32_t>v)


cdef inline uint8_t* put_frame_head(uint8_t* p, uint8_t kind, uint16_t channel, uint32_t size) noexcept nogil:
    p[0] = kind
    put16(p + 1, channel)
    put32(p + 3, size)
    return p + FRAME_HEAD_SIZE
