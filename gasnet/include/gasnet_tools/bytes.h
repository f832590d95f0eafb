/* Checksums and the counting of zero bytes. */
#ifndef CONDUIT_TOOLS_BYTES_H
#define CONDUIT_TOOLS_BYTES_H

#include "annotations.h"

GASNETT_BEGIN_EXTERNC

/* A quick checksum of 64 bits against accidents, not against malice. */
extern uint64_t gasnett_checksum(const void *p, int numbytes);
extern size_t gasnett_count0s(const void *p, size_t numbytes);
/* Copies (the two don't overlap), and counts. */
extern size_t gasnett_count0s_copy(void *GASNETT_RESTRICT dst, const void *GASNETT_RESTRICT src, size_t numbytes);

GASNETT_END_EXTERNC

CONDUIT_INLINE int gasnett_count0s_uint64_t(uint64_t x) {
    /* The highest bit of each byte: set if any of its bits is. Then ones are counted by a product. */
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
