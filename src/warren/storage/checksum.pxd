"""CRC-32C, by the processor's own instructions where it has them."""

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
    #include <wmmintrin.h>

    /* The instruction takes three cycles, but one can begin in each. So a block is cut into three lanes of as
       many words, and their three checksums are made side by side. The first lane is followed by two others and
       the second by one: one multiplication each takes their checksums past these words.

       warren_crc_shifts[n] takes a checksum past n words: it is x**(64n - 33) modulo the polynomial. The product
       of two numbers whose bits are reversed is x times too large, and the division by the instruction
       multiplies by x**32: these are the 33. */
    #define WARREN_CRC_LANE_WORDS_MAX 128
    #define WARREN_CRC_LANES_FROM 96 /* bytes: below, one lane is as fast */
    static uint32_t warren_crc_shifts[2 * WARREN_CRC_LANE_WORDS_MAX + 1];

    __attribute__((target("sse4.2")))
    static void warren_crc_fill_shifts(void) {
        uint64_t shift = 1; /* x**31, since the bits are reversed */
        for (int words = 1; words <= 2 * WARREN_CRC_LANE_WORDS_MAX; words++) {
            warren_crc_shifts[words] = (uint32_t)shift;
            shift = __builtin_ia32_crc32di(shift, 0);
        }
    }
    __attribute__((constructor)) static void warren_crc_begin(void) {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("sse4.2")) warren_crc_fill_shifts();
    }
    __attribute__((target("sse4.2,pclmul")))
    static inline uint64_t warren_crc_shifted(uint64_t crc, size_t words) {
        __m128i by = _mm_cvtsi64_si128(warren_crc_shifts[words]);
        return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), by, 0));
    }
    static inline uint64_t warren_crc_word(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }
    __attribute__((target("sse4.2")))
    static uint32_t warren_crc_sse(uint32_t crc, const uint8_t *p, size_t size) {
        uint64_t wide = crc;
        for (; size >= 8; p += 8, size -= 8) wide = __builtin_ia32_crc32di(wide, warren_crc_word(p));
        crc = (uint32_t)wide;
        while (size--) crc = __builtin_ia32_crc32qi(crc, *p++);
        return crc;
    }
    __attribute__((target("sse4.2,pclmul")))
    static uint32_t warren_crc_lanes(uint32_t crc, const uint8_t *p, size_t size) {
        while (size >= WARREN_CRC_LANES_FROM) {
            size_t words = size / 24 < WARREN_CRC_LANE_WORDS_MAX ? size / 24 : WARREN_CRC_LANE_WORDS_MAX;
            const uint8_t *q = p + 8 * words, *r = q + 8 * words, *end = q;
            uint64_t first = crc, second = 0, third = 0;
            for (; p < end; p += 8, q += 8, r += 8) {
                first = __builtin_ia32_crc32di(first, warren_crc_word(p));
                second = __builtin_ia32_crc32di(second, warren_crc_word(q));
                third = __builtin_ia32_crc32di(third, warren_crc_word(r));
            }
            first = warren_crc_shifted(first, 2 * words) ^ warren_crc_shifted(second, words);
            crc = (uint32_t)(__builtin_ia32_crc32di(0, first) ^ third);
            p = r;
            size -= 24 * words;
        }
        return warren_crc_sse(crc, p, size);
    }
    static inline uint32_t warren_crc32c_on(uint32_t crc, const uint8_t *p, size_t size) {
        if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"))
            return ~warren_crc_lanes(~crc, p, size);
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
