/* Versions, the threading mode, linkage, and types with their formats. */
#include <gasnet_tools.h>

#include "programs.h"

GASNETT_BEGIN_EXTERNC
int in_a_block(void);
int in_a_block(void) { return 1; }
GASNETT_END_EXTERNC
GASNETT_EXTERNC int by_itself(void);
int by_itself(void) { return 2; }

#define TWO 2

static int is_one_of(const char *word, const char *a, const char *b, const char *c) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int test_basics(int argc, char **argv) {
    char text[64];
    size_t size = 77;
    (void)argc, (void)argv;

#if GASNETI_TOOLS_SPEC_VERSION_MAJOR != GASNETT_SPEC_VERSION_MAJOR || \
    GASNETI_TOOLS_SPEC_VERSION_MINOR != GASNETT_SPEC_VERSION_MINOR
#error "a specification has two versions"
#endif
#if GASNETT_SPEC_VERSION_MAJOR != 1 || GASNETT_SPEC_VERSION_MINOR < 20
#error "the tools' specification is older than 1.20"
#endif
    CHECK(gasnett_release_version() == GASNETT_RELEASE_VERSION_MAJOR * UINT64_C(1000000) +
                                           GASNETT_RELEASE_VERSION_MINOR * UINT64_C(10000) + GASNETT_RELEASE_VERSION_PATCH);
    sprintf(text, "%d.%d.%d", GASNETT_RELEASE_VERSION_MAJOR, GASNETT_RELEASE_VERSION_MINOR, GASNETT_RELEASE_VERSION_PATCH);
    CHECK(strcmp(text, gasnett_release_version_str()) == 0);
    CHECK(strcmp(text, _STRINGIFY(GASNETI_RELEASE_VERSION)) == 0);
    CHECK(strlen("" GASNETI_BUILD_ID) > 0);

    /* Exactly one of the two macros must be defined, as 1. The tests are compiled with either. */
#if defined(GASNETT_THREAD_SAFE) == defined(GASNETT_THREAD_SINGLE)
#error "exactly one of GASNETT_THREAD_SAFE and GASNETT_THREAD_SINGLE must be defined"
#elif GASNETT_THREAD_SAFE
    CHECK(GASNETT_MAX_THREADS > 1);
    CHECK(strstr(GASNETT_CONFIG_STRING, "THREADMODEL=PAR") != NULL);
    CHECK(strcmp(_STRINGIFY(GASNETT_THREAD_MODEL), "PAR") == 0);
#elif GASNETT_THREAD_SINGLE
    CHECK(GASNETT_MAX_THREADS == 1);
    CHECK(strstr("" GASNETT_CONFIG_STRING, "THREADMODEL=SEQ") != NULL);
    CHECK(strcmp(_STRINGIFY(GASNETT_THREAD_MODEL), "SEQ") == 0);
#endif
#if defined(GASNET_DEBUG)
    CHECK(strcmp(_STRINGIFY(GASNETT_DEBUG_CONFIG), "debug") == 0);
#else
    CHECK(strcmp(_STRINGIFY(GASNETT_DEBUG_CONFIG), "nodebug") == 0);
#endif
    sprintf(text, "%dbit", (int)(8 * sizeof(void *)));
    CHECK(strcmp(_STRINGIFY(GASNETT_PTR_CONFIG), text) == 0);
    /* Each must be one of GASNet's words. An integer for which the compiler has builtins must be
     * lock-free. */
    CHECK(is_one_of(_STRINGIFY(GASNETT_TIMER_CONFIG), "timers_native", "timers_posixrt", "timers_os"));
    CHECK(is_one_of(_STRINGIFY(GASNETT_MEMBAR_CONFIG), "membars_native", "membars_forced_slow", "membars_forced_yield"));
    CHECK(is_one_of(_STRINGIFY(GASNETT_ATOMIC_CONFIG), "atomics_native", "atomics_compiler", "atomics_mutex"));
    CHECK(is_one_of(_STRINGIFY(GASNETT_ATOMIC32_CONFIG), "atomic32_native", "atomic32_compiler", "atomic32_mutex"));
    CHECK(is_one_of(_STRINGIFY(GASNETT_ATOMIC64_CONFIG), "atomic64_native", "atomic64_compiler", "atomic64_mutex"));
    CHECK(__atomic_always_lock_free(4, 0) == (strcmp(_STRINGIFY(GASNETT_ATOMIC32_CONFIG), "atomic32_mutex") != 0));
    CHECK(__atomic_always_lock_free(8, 0) == (strcmp(_STRINGIFY(GASNETT_ATOMIC64_CONFIG), "atomic64_mutex") != 0));
    CHECK(strstr(GASNETT_CONFIG_STRING, "," _STRINGIFY(GASNETT_TIMER_CONFIG) "," _STRINGIFY(GASNETT_MEMBAR_CONFIG) ","));
    CHECK(strstr(GASNETT_CONFIG_STRING, "," _STRINGIFY(GASNETT_ATOMIC32_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC64_CONFIG)));

    /* These hold the results of GASNet's configure: there are no arguments, and the compiler is
     * this one. */
    CHECK(strlen("" GASNETT_CONFIGURE_ARGS) == 0);
    CHECK(GASNETT_PLATFORM_COMPILER_ID == PLATFORM_COMPILER_ID);
    CHECK(GASNETT_PLATFORM_COMPILER_FAMILYID == PLATFORM_COMPILER_FAMILYID);
    CHECK(GASNETT_PLATFORM_COMPILER_VERSION == PLATFORM_COMPILER_VERSION);
    CHECK(strcmp("" GASNETT_PLATFORM_COMPILER_IDSTR, PLATFORM_COMPILER_IDSTR) == 0);
#ifndef HAVE_PTHREAD_H
#error "GASNet's programs require this macro"
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
