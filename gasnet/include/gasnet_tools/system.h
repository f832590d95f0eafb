/* The machine, the process, its streams, signals and limits. */
#ifndef CONDUIT_TOOLS_SYSTEM_H
#define CONDUIT_TOOLS_SYSTEM_H

#include "annotations.h"
#include "fences.h"

/* ---- Constants ---- */
#if defined(PLATFORM_ARCH_X86_64)
#define GASNETT_SYSTEM_TUPLE "x86_64-unknown-linux-gnu"
#elif defined(PLATFORM_ARCH_AARCH64)
#define GASNETT_SYSTEM_TUPLE "aarch64-unknown-linux-gnu"
#else
#define GASNETT_SYSTEM_TUPLE _STRINGIFY(PLATFORM_ARCH_FAMILYNAME) "-" _STRINGIFY(PLATFORM_OS_FAMILYNAME)
#endif

/* The granularity at which processors share memory. */
#if defined(PLATFORM_ARCH_POWERPC)
#define GASNETT_CACHE_LINE_BYTES 128
#else
#define GASNETT_CACHE_LINE_BYTES 64
#endif

/* If kernels use different page sizes, this is the largest. */
#if defined(PLATFORM_ARCH_POWERPC) || defined(PLATFORM_ARCH_AARCH64)
#define GASNETT_PAGESHIFT 16
#else
#define GASNETT_PAGESHIFT 12
#endif
#define GASNETT_PAGESIZE (1 << GASNETT_PAGESHIFT)

GASNETT_BEGIN_EXTERNC

/* ---- Machine and process ---- */
/* Returns the host's name in lower case. */
extern const char *gasnett_gethostname(void);
/* Returns the program's full path, or an empty string if the path cannot be determined. */
extern const char *gasnett_exe_name(void);
/* Returns the number of this host's processors, or 0 if the number cannot be determined. */
extern int gasnett_cpu_count(void);
/* Returns the size of this host's memory in bytes. If the size cannot be determined, ends the
 * process if `failureIsFatal` is nonzero, and returns 0 otherwise. */
extern uint64_t gasnett_getPhysMemSz(int failureIsFatal);
/* Return the release of the library's interface as major * 1000000 + minor * 10000 + patch, and
 * as text. */
extern uint64_t gasnett_release_version(void);
extern const char *gasnett_release_version_str(void);

/* Binds the calling thread to the processor whose number is `rank` modulo the number of
 * processors. Returns 0 on success. */
#define GASNETT_SET_AFFINITY_SUPPORT 1
extern int gasnett_set_affinity(int rank);
extern void gasnett_sched_yield(void);

/* ---- Streams ---- */
extern void gasnett_flush_streams(void);
/* Closes the standard streams; readers at their other end see end of file. */
extern void gasnett_close_streams(void);

/* ---- Signals ---- */
typedef void (*gasnett_sighandlerfn_t)(int);
/* Sets a handler and returns the previous one. If the handler cannot be set, this is a fatal
 * error. */
extern gasnett_sighandlerfn_t gasnett_reghandler(int sigtocatch, gasnett_sighandlerfn_t fp);
/* Returns the name of a signal, such as SIGUSR1, or null if no signal has this number. Signal
 * handlers may call this function. */
extern const char *gasnett_signame_fromval(int sigval);

/* ---- Limits ----
 * Raise the soft limit to the hard one, unless GASNET_MAXIMIZE_<name> is no. Return nonzero on
 * success. */
extern int gasnett_maximize_rlimits(void);
extern int gasnett_maximize_rlimit(int res, const char *lim_desc);

GASNETT_END_EXTERNC

CONDUIT_INLINE int gasnett_isLittleEndian(void) {
#if defined(PLATFORM_ARCH_LITTLE_ENDIAN)
    return 1;
#else
    return 0;
#endif
}

/* Returns the aspects of the build that reduce performance, one per line, or an empty string if
 * there are none. */
CONDUIT_INLINE const char *gasnett_performance_warning_str(void) {
#if CONDUIT_TOOLS_DEBUG
    return "        debugging and error checking (GASNET_DEBUG)\n";
#else
    return "";
#endif
}

#endif
