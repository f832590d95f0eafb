/* Uniform names for the compiler, the operating system and the processor.
 *
 * For each of the three, exactly one macro of the form PLATFORM_<KIND>_<FAMILY> is defined. Its
 * value is 1. The header can be included on its own, in C and C++, and works with the
 * preprocessor alone. */
#ifndef CONDUIT_PORTABLE_PLATFORM_H
#define CONDUIT_PORTABLE_PLATFORM_H

/* The version of these names, which only increases. */
#define PLATFORM_HEADER_VERSION 1

#define CONDUIT_PLATFORM_STRINGIFY_(x) #x
#define CONDUIT_PLATFORM_STRINGIFY(x) CONDUIT_PLATFORM_STRINGIFY_(x)

/* ---- Compiler ----
 * PLATFORM_COMPILER_<FAMILY> is defined and, depending on the language, so is
 * PLATFORM_COMPILER_<FAMILY>_C or _CXX. FAMILYNAME is the family as a token, and FAMILYID is its
 * number. Compilers that pretend to be GCC are checked before GCC. */
#if defined(__NVCOMPILER)
#define PLATFORM_COMPILER_NVHPC 1
#define PLATFORM_COMPILER_FAMILYNAME NVHPC
#define PLATFORM_COMPILER_FAMILYID 20
#define CONDUIT_COMPILER_MAJOR __NVCOMPILER_MAJOR__
#define CONDUIT_COMPILER_MINOR __NVCOMPILER_MINOR__
#define CONDUIT_COMPILER_PATCH __NVCOMPILER_PATCHLEVEL__
#elif defined(__INTEL_COMPILER)
#define PLATFORM_COMPILER_INTEL 1
#define PLATFORM_COMPILER_FAMILYNAME INTEL
#define PLATFORM_COMPILER_FAMILYID 2
#define CONDUIT_COMPILER_MAJOR (__INTEL_COMPILER / 100)
#define CONDUIT_COMPILER_MINOR (__INTEL_COMPILER % 100)
#define CONDUIT_COMPILER_PATCH 0
#elif defined(__clang__)
#define PLATFORM_COMPILER_CLANG 1
#define PLATFORM_COMPILER_FAMILYNAME CLANG
#define PLATFORM_COMPILER_FAMILYID 19
#define CONDUIT_COMPILER_MAJOR __clang_major__
#define CONDUIT_COMPILER_MINOR __clang_minor__
#define CONDUIT_COMPILER_PATCH __clang_patchlevel__
#elif defined(__GNUC__)
#define PLATFORM_COMPILER_GNU 1
#define PLATFORM_COMPILER_FAMILYNAME GNU
#define PLATFORM_COMPILER_FAMILYID 1
#define CONDUIT_COMPILER_MAJOR __GNUC__
#define CONDUIT_COMPILER_MINOR __GNUC_MINOR__
#define CONDUIT_COMPILER_PATCH __GNUC_PATCHLEVEL__
#else
#define PLATFORM_COMPILER_UNKNOWN 1
#define PLATFORM_COMPILER_FAMILYNAME UNKNOWN
#define PLATFORM_COMPILER_FAMILYID 9999
#define CONDUIT_COMPILER_MAJOR 0
#define CONDUIT_COMPILER_MINOR 0
#define CONDUIT_COMPILER_PATCH 0
#endif

/* The language, and its version as announced by the compiler: 199901L, 201112L, ... for C,
 * 201103L, 201703L, ... for C++. */
#if defined(__cplusplus)
#define PLATFORM_COMPILER_CXX_LANGLVL __cplusplus
#if defined(PLATFORM_COMPILER_NVHPC)
#define PLATFORM_COMPILER_NVHPC_CXX 1
#elif defined(PLATFORM_COMPILER_INTEL)
#define PLATFORM_COMPILER_INTEL_CXX 1
#elif defined(PLATFORM_COMPILER_CLANG)
#define PLATFORM_COMPILER_CLANG_CXX 1
#elif defined(PLATFORM_COMPILER_GNU)
#define PLATFORM_COMPILER_GNU_CXX 1
#endif
#else
#if defined(__STDC_VERSION__)
#define PLATFORM_COMPILER_C_LANGLVL __STDC_VERSION__
#else
#define PLATFORM_COMPILER_C_LANGLVL 199000L
#endif
#if defined(PLATFORM_COMPILER_NVHPC)
#define PLATFORM_COMPILER_NVHPC_C 1
#elif defined(PLATFORM_COMPILER_INTEL)
#define PLATFORM_COMPILER_INTEL_C 1
#elif defined(PLATFORM_COMPILER_CLANG)
#define PLATFORM_COMPILER_CLANG_C 1
#elif defined(PLATFORM_COMPILER_GNU)
#define PLATFORM_COMPILER_GNU_C 1
#endif
#endif

/* The compiler's version as an increasing number, and as text. */
#define PLATFORM_COMPILER_VERSION_INT(major, minor, patch) (((major) << 24) | ((minor) << 16) | (patch))
#define PLATFORM_COMPILER_VERSION \
    PLATFORM_COMPILER_VERSION_INT(CONDUIT_COMPILER_MAJOR, CONDUIT_COMPILER_MINOR, CONDUIT_COMPILER_PATCH)
#if defined(__VERSION__)
#define PLATFORM_COMPILER_VERSION_STR __VERSION__
#else
#define PLATFORM_COMPILER_VERSION_STR "(unknown)"
#endif

/* Comparisons of the actual version with a given one, for #if. */
#define PLATFORM_COMPILER_VERSION_GT(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION > PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_GE(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION >= PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_EQ(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION == PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_LE(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION <= PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_LT(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION < PLATFORM_COMPILER_VERSION_INT(major, minor, patch))

/* A number that distinguishes compilers with different C ABIs, and its readable text. */
#define PLATFORM_COMPILER_ID (10000 + PLATFORM_COMPILER_FAMILYID)
#define PLATFORM_COMPILER_IDSTR \
    "|COMPILER_FAMILY:" CONDUIT_PLATFORM_STRINGIFY(PLATFORM_COMPILER_FAMILYNAME) \
    "|COMPILER_VERSION:" PLATFORM_COMPILER_VERSION_STR "|"

/* ---- Operating system ---- */
#if defined(__linux__)
#define PLATFORM_OS_LINUX 1
#define PLATFORM_OS_FAMILYNAME LINUX
#elif defined(__APPLE__) && defined(__MACH__)
#define PLATFORM_OS_DARWIN 1
#define PLATFORM_OS_FAMILYNAME DARWIN
#elif defined(__FreeBSD__)
#define PLATFORM_OS_FREEBSD 1
#define PLATFORM_OS_FAMILYNAME FREEBSD
#elif defined(__NetBSD__)
#define PLATFORM_OS_NETBSD 1
#define PLATFORM_OS_FAMILYNAME NETBSD
#elif defined(__OpenBSD__)
#define PLATFORM_OS_OPENBSD 1
#define PLATFORM_OS_FAMILYNAME OPENBSD
#elif defined(__CYGWIN__)
#define PLATFORM_OS_CYGWIN 1
#define PLATFORM_OS_FAMILYNAME CYGWIN
#elif defined(__sun)
#define PLATFORM_OS_SOLARIS 1
#define PLATFORM_OS_FAMILYNAME SOLARIS
#else
#define PLATFORM_OS_UNKNOWN 1
#define PLATFORM_OS_FAMILYNAME UNKNOWN
#endif

/* ---- Processor ----
 * In addition to the family, exactly one of PLATFORM_ARCH_32 and _64 (pointer width) and exactly
 * one of PLATFORM_ARCH_LITTLE_ENDIAN and _BIG_ENDIAN are defined. */
#if defined(__x86_64__) || defined(__amd64__)
#define PLATFORM_ARCH_X86_64 1
#define PLATFORM_ARCH_FAMILYNAME X86_64
#define PLATFORM_ARCH_FAMILYID 2
#elif defined(__i386__)
#define PLATFORM_ARCH_X86 1
#define PLATFORM_ARCH_FAMILYNAME X86
#define PLATFORM_ARCH_FAMILYID 1
#elif defined(__aarch64__)
#define PLATFORM_ARCH_AARCH64 1
#define PLATFORM_ARCH_FAMILYNAME AARCH64
#define PLATFORM_ARCH_FAMILYID 12
#elif defined(__arm__)
#define PLATFORM_ARCH_ARM 1
#define PLATFORM_ARCH_FAMILYNAME ARM
#define PLATFORM_ARCH_FAMILYID 10
#elif defined(__powerpc__) || defined(__powerpc64__)
#define PLATFORM_ARCH_POWERPC 1
#define PLATFORM_ARCH_FAMILYNAME POWERPC
#define PLATFORM_ARCH_FAMILYID 4
#elif defined(__riscv)
#define PLATFORM_ARCH_RISCV 1
#define PLATFORM_ARCH_FAMILYNAME RISCV
#define PLATFORM_ARCH_FAMILYID 14
#else
#define PLATFORM_ARCH_UNKNOWN 1
#define PLATFORM_ARCH_FAMILYNAME UNKNOWN
#define PLATFORM_ARCH_FAMILYID 9999
#endif

#if defined(__SIZEOF_POINTER__)
#if __SIZEOF_POINTER__ == 8
#define PLATFORM_ARCH_64 1
#else
#define PLATFORM_ARCH_32 1
#endif
#elif defined(_LP64) || defined(__LP64__)
#define PLATFORM_ARCH_64 1
#else
#define PLATFORM_ARCH_32 1
#endif

#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define PLATFORM_ARCH_BIG_ENDIAN 1
#else
#define PLATFORM_ARCH_LITTLE_ENDIAN 1
#endif

#endif
