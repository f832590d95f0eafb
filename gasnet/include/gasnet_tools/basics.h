/* The basis of all other tools headers: threading mode, debug mode, C linkage, versions, and
 * integer types. */
#ifndef CONDUIT_TOOLS_BASICS_H
#define CONDUIT_TOOLS_BASICS_H

#include "../gasnet_config.h"
#include "../gasnet_portable_platform.h"

/* C++ before C++11 hides the macros of <inttypes.h> and <stdint.h> unless requested. */
#if defined(__cplusplus)
#ifndef __STDC_FORMAT_MACROS
#define __STDC_FORMAT_MACROS 1
#endif
#ifndef __STDC_LIMIT_MACROS
#define __STDC_LIMIT_MACROS 1
#endif
#ifndef __STDC_CONSTANT_MACROS
#define __STDC_CONSTANT_MACROS 1
#endif
#endif

#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Threads ----
 * A client may define GASNETT_THREAD_SAFE or GASNETT_THREAD_SINGLE. Otherwise the threading mode
 * of its GASNet decides or, without GASNet, whether the compiler was asked for threads (-pthread
 * defines _REENTRANT). Afterwards exactly one of the two is defined, with the value 1. */
#if defined(GASNETT_THREAD_SAFE) && (GASNETT_THREAD_SAFE + 0 == 0)
#undef GASNETT_THREAD_SAFE
#define CONDUIT_TOOLS_NAMED_SAFE_0 1
#endif
#if defined(GASNETT_THREAD_SINGLE) && (GASNETT_THREAD_SINGLE + 0 == 0)
#undef GASNETT_THREAD_SINGLE
#define CONDUIT_TOOLS_NAMED_SINGLE_0 1
#endif
#if defined(GASNETT_THREAD_SAFE) && defined(GASNETT_THREAD_SINGLE)
#error "GASNETT_THREAD_SAFE and GASNETT_THREAD_SINGLE exclude each other"
#elif defined(GASNETT_THREAD_SAFE)
#undef GASNETT_THREAD_SAFE
#define GASNETT_THREAD_SAFE 1
#elif defined(GASNETT_THREAD_SINGLE)
#undef GASNETT_THREAD_SINGLE
#define GASNETT_THREAD_SINGLE 1
#elif defined(CONDUIT_TOOLS_NAMED_SAFE_0)
#define GASNETT_THREAD_SINGLE 1
#elif defined(CONDUIT_TOOLS_NAMED_SINGLE_0)
#define GASNETT_THREAD_SAFE 1
#elif defined(GASNET_PAR) || defined(GASNET_PARSYNC)
#define GASNETT_THREAD_SAFE 1
#elif defined(GASNET_SEQ)
#define GASNETT_THREAD_SINGLE 1
#elif defined(_REENTRANT)
#define GASNETT_THREAD_SAFE 1
#else
#define GASNETT_THREAD_SINGLE 1
#endif

/* The number of threads for which a program may size its tables. The library itself sets no
 * limit. */
#ifndef GASNETT_MAX_THREADS
#if defined(GASNETT_THREAD_SAFE)
#define GASNETT_MAX_THREADS 256
#else
#define GASNETT_MAX_THREADS 1
#endif
#endif

/* Macros that GASNet's own programs query, under autoconf's names. */
#ifndef HAVE_PTHREAD_H
#define HAVE_PTHREAD_H 1
#endif
#ifndef HAVE_MMAP
#define HAVE_MMAP 1
#endif

#if defined(GASNETT_THREAD_SAFE)
#include <pthread.h>
#endif

/* ---- Debug ----
 * The make fragments and pkg-config files of the debug library define GASNET_DEBUG. */
#if defined(GASNET_DEBUG)
#define CONDUIT_TOOLS_DEBUG 1
#else
#define CONDUIT_TOOLS_DEBUG 0
#endif

/* ---- Linkage ---- */
#if defined(__cplusplus)
#define GASNETT_BEGIN_EXTERNC extern "C" {
#define GASNETT_END_EXTERNC }
#define GASNETT_EXTERNC extern "C"
#else
#define GASNETT_BEGIN_EXTERNC
#define GASNETT_END_EXTERNC
#define GASNETT_EXTERNC extern
#endif

/* ---- Stringification ---- */
#ifndef _STRINGIFY
#define _STRINGIFY_HELPER(x) #x
#define _STRINGIFY(x) _STRINGIFY_HELPER(x)
#endif
#ifndef _CONCAT
#define _CONCAT_HELPER(a, b) a##b
#define _CONCAT(a, b) _CONCAT_HELPER(a, b)
#endif

/* ---- Formats of size_t, like those of <inttypes.h> for fixed-width types ---- */
#ifndef PRIuSZ
#define PRIuSZ "zu"
#define PRIdSZ "zd"
#define PRIxSZ "zx"
#endif

/* ---- Versions ----
 * The versions of the specification are in gasnet_config.h. */
#define GASNETT_RELEASE_VERSION_MAJOR GASNET_RELEASE_VERSION_MAJOR
#define GASNETT_RELEASE_VERSION_MINOR GASNET_RELEASE_VERSION_MINOR
#define GASNETT_RELEASE_VERSION_PATCH GASNET_RELEASE_VERSION_PATCH

/* ---- Configuration ----
 * The configuration of the tools, in GASNet's terms, as names to be stringified. */
#if defined(GASNETT_THREAD_SAFE)
#define GASNETT_THREAD_MODEL PAR
#else
#define GASNETT_THREAD_MODEL SEQ
#endif
#if CONDUIT_TOOLS_DEBUG
#define GASNETT_DEBUG_CONFIG debug
#else
#define GASNETT_DEBUG_CONFIG nodebug
#endif
#if defined(PLATFORM_ARCH_64)
#define GASNETT_PTR_CONFIG 64bit
#else
#define GASNETT_PTR_CONFIG 32bit
#endif
/* Ticks come from the processor's counter (timers.h) or, on other processors, from
 * clock_gettime. */
#if defined(PLATFORM_ARCH_X86_64) || defined(PLATFORM_ARCH_X86) || defined(PLATFORM_ARCH_AARCH64)
#define GASNETT_TIMER_CONFIG timers_native
#else
#define GASNETT_TIMER_CONFIG timers_posixrt
#endif
/* Fences are the processor's, and atomic operations are the compiler's builtins. */
#define GASNETT_MEMBAR_CONFIG membars_native
#define GASNETT_ATOMIC_CONFIG atomics_compiler
#define GASNETT_ATOMIC32_CONFIG atomic32_compiler
#define GASNETT_ATOMIC64_CONFIG atomic64_compiler

/* Nothing is configured before these headers are compiled: there are no configure arguments, and
 * the compiler in use is the one that they are configured for. */
#define GASNETT_CONFIGURE_ARGS ""
#define GASNETT_PLATFORM_COMPILER_ID PLATFORM_COMPILER_ID
#define GASNETT_PLATFORM_COMPILER_IDSTR PLATFORM_COMPILER_IDSTR
#define GASNETT_PLATFORM_COMPILER_FAMILYID PLATFORM_COMPILER_FAMILYID
#define GASNETT_PLATFORM_COMPILER_VERSION PLATFORM_COMPILER_VERSION

/* The whole configuration in readable form, as a literal. */
#define GASNETT_CONFIG_STRING \
    "RELEASE=" _STRINGIFY(GASNET_RELEASE_VERSION_MAJOR) "." _STRINGIFY(GASNET_RELEASE_VERSION_MINOR) "." \
    _STRINGIFY(GASNET_RELEASE_VERSION_PATCH) ",SPEC=" _STRINGIFY(GASNETT_SPEC_VERSION_MAJOR) "." \
    _STRINGIFY(GASNETT_SPEC_VERSION_MINOR) ",LIBRARY=Conduit,THREADMODEL=" _STRINGIFY(GASNETT_THREAD_MODEL) \
    ",PTR=" _STRINGIFY(GASNETT_PTR_CONFIG) "," _STRINGIFY(GASNETT_DEBUG_CONFIG) "," _STRINGIFY(GASNETT_TIMER_CONFIG) "," \
    _STRINGIFY(GASNETT_MEMBAR_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC32_CONFIG) "," \
    _STRINGIFY(GASNETT_ATOMIC64_CONFIG)

/* The qualifiers of functions in headers. Such functions are always inlined, and cause no
 * warning if a program does not use them. */
#define CONDUIT_INLINE static __inline__ __attribute__((__always_inline__, __unused__))
/* The qualifiers of variadic functions in headers, which no compiler inlines. */
#define CONDUIT_LOCAL static __inline__ __attribute__((__unused__))

#endif
