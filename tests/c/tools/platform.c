/* The names of the platform alone. This file includes none of the tools' other headers before them.
 * */
#include <gasnet_portable_platform.h>

#include <stdint.h>
#include <string.h>

#include "programs.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#if PLATFORM_HEADER_VERSION < 1
#error "a version is missing"
#endif

/* Exactly one family of each kind must be defined. */
#if PLATFORM_COMPILER_GNU + PLATFORM_COMPILER_CLANG + PLATFORM_COMPILER_INTEL + PLATFORM_COMPILER_NVHPC + \
        PLATFORM_COMPILER_UNKNOWN != 1
#error "exactly one compiler must be defined"
#endif
#if PLATFORM_OS_LINUX + PLATFORM_OS_DARWIN + PLATFORM_OS_FREEBSD + PLATFORM_OS_NETBSD + PLATFORM_OS_OPENBSD + \
        PLATFORM_OS_CYGWIN + PLATFORM_OS_SOLARIS + PLATFORM_OS_UNKNOWN != 1
#error "exactly one operating system must be defined"
#endif
#if PLATFORM_ARCH_X86_64 + PLATFORM_ARCH_X86 + PLATFORM_ARCH_AARCH64 + PLATFORM_ARCH_ARM + PLATFORM_ARCH_POWERPC + \
        PLATFORM_ARCH_RISCV + PLATFORM_ARCH_UNKNOWN != 1
#error "exactly one processor must be defined"
#endif
#if PLATFORM_ARCH_32 + PLATFORM_ARCH_64 != 1 || PLATFORM_ARCH_LITTLE_ENDIAN + PLATFORM_ARCH_BIG_ENDIAN != 1
#error "exactly one pointer width and one byte order must be defined"
#endif

/* GCC compiles the tests. If it poses as another compiler, only the languages of that compiler are
 * checked. */
#if defined(__cplusplus)
#if PLATFORM_COMPILER_GNU_CXX + PLATFORM_COMPILER_CLANG_CXX + PLATFORM_COMPILER_INTEL_CXX + PLATFORM_COMPILER_NVHPC_CXX != 1
#error "exactly one C++ compiler must be defined"
#endif
#if PLATFORM_COMPILER_CXX_LANGLVL < 201103L || defined(PLATFORM_COMPILER_C_LANGLVL)
#error "C++11 or later is required"
#endif
#else
#if PLATFORM_COMPILER_GNU_C + PLATFORM_COMPILER_CLANG_C + PLATFORM_COMPILER_INTEL_C + PLATFORM_COMPILER_NVHPC_C != 1
#error "exactly one C compiler must be defined"
#endif
#if PLATFORM_COMPILER_C_LANGLVL < 199901L || defined(PLATFORM_COMPILER_CXX_LANGLVL)
#error "C99 or later is required"
#endif
#endif

#if !PLATFORM_COMPILER_VERSION_GE(1, 0, 0) || PLATFORM_COMPILER_VERSION_LT(1, 0, 0) || \
    !PLATFORM_COMPILER_VERSION_GT(1, 0, 0) || PLATFORM_COMPILER_VERSION_LE(1, 0, 0) || PLATFORM_COMPILER_VERSION_EQ(1, 0, 0)
#error "versions are compared wrongly"
#endif
#if PLATFORM_COMPILER_GNU && !PLATFORM_COMPILER_VERSION_EQ(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#error "the version is wrong"
#endif

int test_platform(int argc, char **argv) {
    const uint16_t one = 1;
    (void)argc, (void)argv;
    CHECK(PLATFORM_COMPILER_VERSION_INT(1, 2, 3) < PLATFORM_COMPILER_VERSION_INT(1, 3, 0));
    CHECK(PLATFORM_COMPILER_VERSION > 0 && PLATFORM_COMPILER_ID > 0);
    CHECK(strlen(PLATFORM_COMPILER_VERSION_STR) > 0);
    CHECK(strstr(PLATFORM_COMPILER_IDSTR, TEXT(PLATFORM_COMPILER_FAMILYNAME)) != NULL);
    CHECK(PLATFORM_COMPILER_FAMILYID > 0 && PLATFORM_ARCH_FAMILYID > 0);
    CHECK(strcmp(TEXT(PLATFORM_OS_FAMILYNAME), "PLATFORM_OS_FAMILYNAME") != 0);
    CHECK(strcmp(TEXT(PLATFORM_ARCH_FAMILYNAME), "PLATFORM_ARCH_FAMILYNAME") != 0);
#if PLATFORM_ARCH_64
    CHECK(sizeof(void *) == 8);
#else
    CHECK(sizeof(void *) == 4);
#endif
#if PLATFORM_ARCH_LITTLE_ENDIAN
    CHECK(*(const unsigned char *)&one == 1);
#else
    CHECK(*(const unsigned char *)&one == 0);
#endif
    return 0;
}
