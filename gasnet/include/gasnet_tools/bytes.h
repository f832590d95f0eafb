/* Checksums, counting of zero bytes, and copies of a few bytes. */
#ifndef CONDUIT_TOOLS_BYTES_H
#define CONDUIT_TOOLS_BYTES_H

#include "annotations.h"

GASNETT_BEGIN_EXTERNC

/* A fast 64-bit checksum that detects accidental changes, not malicious ones. */
extern uint64_t gasnett_checksum(const void *p, int numbytes);
extern size_t gasnett_count0s(const void *p, size_t numbytes);
/* Copies bytes and returns the number of zero bytes among them. The two ranges must not overlap. */
extern size_t gasnett_count0s_copy(void *GASNETT_RESTRICT dst, const void *GASNETT_RESTRICT src, size_t numbytes);

GASNETT_END_EXTERNC

/* Copies 1, 2, 4 or 8 bytes with one load and one store. */
CONDUIT_INLINE void conduit_tools_copy(void *to, const void *from, size_t bytes) {
    switch (bytes) {
    case 1: memcpy(to, from, 1); break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memcpy(to, from, bytes);
    }
}

/* The offset of the low-order bytes in an 8-byte value. */
#if defined(PLATFORM_ARCH_BIG_ENDIAN)
#define CONDUIT_LOWEST_BYTES(value, bytes) ((char *)(value) + 8 - (bytes))
#else
#define CONDUIT_LOWEST_BYTES(value, bytes) ((char *)(value))
#endif

CONDUIT_INLINE void conduit_tools_store_value(void *to, uint64_t value, size_t bytes) {
    conduit_tools_copy(to, CONDUIT_LOWEST_BYTES(&value, bytes), bytes);
}

CONDUIT_INLINE uint64_t conduit_tools_load_value(const void *from, size_t bytes) {
    uint64_t value = 0;
    conduit_tools_copy(CONDUIT_LOWEST_BYTES(&value, bytes), from, bytes);
    return value;
}

/* Copies between ranges that do not overlap. The aligned form requires addresses that are
 * multiples of the length. */
#define GASNETT_FAST_ALIGNED_MEMCPY(dest, src, nbytes) conduit_tools_copy((dest), (src), (nbytes))
#define GASNETT_FAST_UNALIGNED_MEMCPY(dest, src, nbytes) memcpy((dest), (src), (nbytes))
/* Stores the low-order `nbytes` bytes, up to 8, of an integer as an integer of that size. The
 * other form loads such an integer and returns it as a uint64_t from the function that uses the
 * macro. */
#define GASNETT_VALUE_ASSIGN(dest, value, nbytes) conduit_tools_store_value((dest), (uint64_t)(value), (nbytes))
#define GASNETT_VALUE_RETURN(src, nbytes) return conduit_tools_load_value((src), (nbytes))

CONDUIT_INLINE int gasnett_count0s_uint64_t(uint64_t x) {
    /* Sets one bit for each nonzero byte. A product then counts these bits. */
    const uint64_t low = UINT64_C(0x7F7F7F7F7F7F7F7F);
    const uint64_t nonzero = ((((x & low) + low) | x) >> 7) & UINT64_C(0x0101010101010101);
    return 8 - (int)((nonzero * UINT64_C(0x0101010101010101)) >> 56);
}

CONDUIT_INLINE int gasnett_count0s_uint32_t(uint32_t x) {
    return gasnett_count0s_uint64_t(x) - 4;
}

CONDUIT_INLINE int gasnett_count0s_uintptr_t(uintptr_t x) {
    return gasnett_count0s_uint64_t(x) - (int)(8 - sizeof(uintptr_t));
}

#endif
