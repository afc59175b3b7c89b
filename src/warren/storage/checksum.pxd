"""CRC-32C, by the processor's own instruction where it has one."""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    static inline uint32_t warren_crc_table(uint32_t crc, const uint8_t *p, size_t size) {
        static const uint32_t nibble[16] = {
            0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
            0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};
        while (size--) {
            crc ^= *p++;
            crc = (crc >> 4) ^ nibble[crc & 15];
            crc = (crc >> 4) ^ nibble[crc & 15];
        }
        return crc;
    }

    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static uint32_t warren_crc_sse(uint32_t crc, const uint8_t *p, size_t size) {
        uint64_t wide = crc, word;
        while (size >= 8) {
            memcpy(&word, p, 8);
            wide = __builtin_ia32_crc32di(wide, word);
            p += 8;
            size -= 8;
        }
        crc = (uint32_t)wide;
        while (size--) crc = __builtin_ia32_crc32qi(crc, *p++);
        return crc;
    }
    static inline uint32_t warren_crc32c_on(uint32_t crc, const uint8_t *p, size_t size) {
        if (__builtin_cpu_supports("sse4.2")) return ~warren_crc_sse(~crc, p, size);
        return ~warren_crc_table(~crc, p, size);
    }
    #else
    static inline uint32_t warren_crc32c_on(uint32_t crc, const uint8_t *p, size_t size) {
        return ~warren_crc_table(~crc, p, size);
    }
    #endif
    static inline uint32_t warren_crc32c(const uint8_t *p, size_t size) {
        return warren_crc32c_on(0, p, size);
    }
    """
    uint32_t crc32c "warren_crc32c"(const uint8_t* p, size_t size) noexcept nogil
    uint32_t crc32c_on "warren_crc32c_on"(uint32_t crc, const uint8_t* p, size_t size) noexcept nogil
    uint32_t crc32c_by_table "warren_crc_table"(uint32_t crc, const uint8_t* p, size_t size) noexcept nogil
