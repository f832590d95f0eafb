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

/* The granularity in which processors share memory. */
#if defined(PLATFORM_ARCH_POWERPC)
#define GASNETT_CACHE_LINE_BYTES 128
#else
#define GASNETT_CACHE_LINE_BYTES 64
#endif

/* The largest value, if kernels differ. */
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
/* Returns the program's full path; empty if it cannot be determined. */
extern const char *gasnett_exe_name(void);
/* Returns the number of this host's processors; 0 if it cannot be determined. */
extern int gasnett_cpu_count(void);
/* Returns this host's memory in bytes. If it cannot be determined, returns 0 or ends the
 * process, as requested. */
extern uint64_t gasnett_getPhysMemSz(int failureIsFatal);
/* The library's interface release: major * 1000000 + minor * 10000 + patch, and as text. */
extern uint64_t gasnett_release_version(void);
extern const char *gasnett_release_version_str(void);

/* Binds the calling thread to processor `rank` modulo their number. Returns 0 on success. */
#define GASNETT_SET_AFFINITY_SUPPORT 1
extern int gasnett_set_affinity(int rank);
extern void gasnett_sched_yield(void);

/* ---- Streams ---- */
extern void gasnett_flush_streams(void);
/* Closes the standard streams; readers at their other end see end of file. */
extern void gasnett_close_streams(void);

/* ---- Signals ---- */
typedef void (*gasnett_sighandlerfn_t)(int);
/* Returns the previous handler. A handler that cannot be set is a fatal error. */
extern gasnett_sighandlerfn_t gasnett_reghandler(int sigtocatch, gasnett_sighandlerfn_t fp);
/* Returns the name of a signal, like SIGUSR1; null for other numbers. Signal handlers may call
 * it. */
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

/* The aspects of the build that reduce performance, one per line; empty if there are none. */
CONDUIT_INLINE const char *gasnett_performance_warning_str(void) {
#if CONDUIT_TOOLS_DEBUG
    return "        debugging and error checking (GASNET_DEBUG)\n";
#else
    return "";
#endif
}

#endif
