/* Copies, checksums and counts of zero bytes, at every alignment. */
#include <gasnet_tools.h>

#include "programs.h"

static uint64_t loaded(const void *from, size_t bytes) { GASNETT_VALUE_RETURN(from, bytes); }

/* Copies values and bytes of every small size. Neighbouring bytes must not change. */
static void small_copies(void) {
    const uint64_t value = UINT64_C(0x8182838485868788);
    uint64_t words[3], other[3];
    size_t bytes;
    for (bytes = 0; bytes <= 8; ++bytes) {
        const uint64_t lowest = bytes == 8 ? value : value & ((UINT64_C(1) << 8 * bytes) - 1);
        memset(words, 9, sizeof(words));
        GASNETT_VALUE_ASSIGN(&words[1], value, bytes);
        CHECK(words[0] == words[2] && ((unsigned char *)&words[1])[bytes == 8 ? -1 : (int)bytes] == 9);
        if (bytes > 0) CHECK(loaded(&words[1], bytes) == lowest);
        memset(other, 7, sizeof(other));
        GASNETT_FAST_ALIGNED_MEMCPY(&other[1], &words[1], bytes);
        CHECK(memcmp(&other[1], &words[1], bytes) == 0 && ((unsigned char *)other)[8 + bytes] == 7);
        CHECK(((unsigned char *)other)[7] == 7);
        memset(other, 7, sizeof(other));
        GASNETT_FAST_UNALIGNED_MEMCPY((char *)other + 3, (char *)words + 8, bytes);
        CHECK(memcmp((char *)other + 3, &words[1], bytes) == 0 && ((unsigned char *)other)[3 + bytes] == 7);
    }
    {
        uint32_t four = 0;
        GASNETT_VALUE_ASSIGN(&four, -2, sizeof(four));
        CHECK(four == UINT32_MAX - 1 && loaded(&four, sizeof(four)) == UINT32_MAX - 1);
    }
    memset(words, 5, sizeof(words));
    GASNETT_FAST_ALIGNED_MEMCPY(other, words, sizeof(words));
    CHECK(memcmp(other, words, sizeof(words)) == 0);
}

int test_bytes(int argc, char **argv) {
    unsigned char from[128], to[128 + 2];
    size_t offset, length, i;
    (void)argc, (void)argv;
    for (i = 0; i < sizeof(from); ++i) from[i] = (unsigned char)(i % 3 == 0 ? 0 : i);

    for (offset = 0; offset < 16; ++offset) {
        for (length = 0; length + offset < sizeof(from); ++length) {
            size_t expected = 0;
            for (i = 0; i < length; ++i) expected += from[offset + i] == 0;
            CHECK(gasnett_count0s(from + offset, length) == expected);
            memset(to, 9, sizeof(to));
            CHECK(gasnett_count0s_copy(to + 1, from + offset, length) == expected);
            CHECK(to[0] == 9 && to[length + 1] == 9 && memcmp(to + 1, from + offset, length) == 0);
        }
    }

    CHECK(gasnett_count0s_uint64_t(0) == 8 && gasnett_count0s_uint64_t(UINT64_MAX) == 0);
    CHECK(gasnett_count0s_uint32_t(0) == 4 && gasnett_count0s_uint32_t(UINT32_MAX) == 0);
    CHECK(gasnett_count0s_uintptr_t(0) == (int)sizeof(uintptr_t));
    for (i = 0; i < 64; ++i) {
        CHECK(gasnett_count0s_uint64_t(UINT64_C(1) << i) == 7);
        CHECK(gasnett_count0s_uint64_t(~(UINT64_C(0xFF) << (i / 8 * 8))) == 1);
    }
    for (i = 0; i < 32; ++i) CHECK(gasnett_count0s_uint32_t(UINT32_C(1) << i) == 3);

    small_copies();

    /* The checksum must depend only on the bytes and the length. */
    memcpy(to + 1, from, 100);
    CHECK(gasnett_checksum(from, 100) == gasnett_checksum(to + 1, 100));
    CHECK(gasnett_checksum(from, 100) != gasnett_checksum(from, 99));
    to[50] ^= 1;
    CHECK(gasnett_checksum(from, 100) != gasnett_checksum(to + 1, 100));
    CHECK(gasnett_checksum(NULL, 0) == gasnett_checksum(from, 0));
    return 0;
}
