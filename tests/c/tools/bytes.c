/* Checksums and counts of zero bytes, at every alignment. */
#include <gasnet_tools.h>

#include "programs.h"

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

    /* The checksum depends on bytes and length, and on nothing else. */
    memcpy(to + 1, from, 100);
    CHECK(gasnett_checksum(from, 100) == gasnett_checksum(to + 1, 100));
    CHECK(gasnett_checksum(from, 100) != gasnett_checksum(from, 99));
    to[50] ^= 1;
    CHECK(gasnett_checksum(from, 100) != gasnett_checksum(to + 1, 100));
    CHECK(gasnett_checksum(NULL, 0) == gasnett_checksum(from, 0));
    return 0;
}
