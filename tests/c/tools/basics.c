/* Versions, the mode, linkage, types and their formats. */
#include <gasnet_tools.h>

#include "programs.h"

GASNETT_BEGIN_EXTERNC
int in_a_block(void);
int in_a_block(void) { return 1; }
GASNETT_END_EXTERNC
GASNETT_EXTERNC int by_itself(void);
int by_itself(void) { return 2; }

#define TWO 2

int test_basics(int argc, char **argv) {
    char text[64];
    size_t size = 77;
    (void)argc, (void)argv;

#if GASNETT_SPEC_VERSION_MAJOR != 1 || GASNETT_SPEC_VERSION_MINOR < 20
#error "the tools' specification is 1.20 or later"
#endif
    CHECK(gasnett_release_version() == GASNETT_RELEASE_VERSION_MAJOR * UINT64_C(1000000) +
                                           GASNETT_RELEASE_VERSION_MINOR * UINT64_C(10000) + GASNETT_RELEASE_VERSION_PATCH);
    sprintf(text, "%d.%d.%d", GASNETT_RELEASE_VERSION_MAJOR, GASNETT_RELEASE_VERSION_MINOR, GASNETT_RELEASE_VERSION_PATCH);
    CHECK(strcmp(text, gasnett_release_version_str()) == 0);

    /* Exactly one of them, as 1; the tests are compiled with either. */
#if defined(GASNETT_THREAD_SAFE) == defined(GASNETT_THREAD_SINGLE)
#error "one of GASNETT_THREAD_SAFE and GASNETT_THREAD_SINGLE"
#elif GASNETT_THREAD_SAFE
    CHECK(GASNETT_MAX_THREADS > 1);
    CHECK(strstr(GASNETT_CONFIG_STRING, "THREADMODEL=PAR") != NULL);
#elif GASNETT_THREAD_SINGLE
    CHECK(GASNETT_MAX_THREADS == 1);
    CHECK(strstr("" GASNETT_CONFIG_STRING, "THREADMODEL=SEQ") != NULL);
#endif
#ifndef HAVE_PTHREAD_H
#error "GASNet's programs look for this"
#endif

    CHECK(in_a_block() + by_itself() == 3);
    CHECK(strcmp(_STRINGIFY(TWO), "2") == 0);
    CHECK(_CONCAT(in_a_, block)() == 1);

    CHECK(sizeof(int8_t) == 1 && sizeof(uint8_t) == 1 && sizeof(int16_t) == 2 && sizeof(uint16_t) == 2);
    CHECK(sizeof(int32_t) == 4 && sizeof(uint32_t) == 4 && sizeof(int64_t) == 8 && sizeof(uint64_t) == 8);
    CHECK(sizeof(intptr_t) == sizeof(void *) && sizeof(uintptr_t) == sizeof(void *));
    sprintf(text, "%" PRIuSZ " %" PRIxSZ " %" PRIdSZ " %" PRIu64, size, size, (ptrdiff_t)-1, UINT64_C(1) << 40);
    CHECK(strcmp(text, "77 4d -1 1099511627776") == 0);
    return 0;
}
