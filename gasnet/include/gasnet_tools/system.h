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

/* Lines are shared between processors in pieces of this size. */
#if defined(PLATFORM_ARCH_POWERPC)
#define GASNETT_CACHE_LINE_BYTES 128
#else
#define GASNETT_CACHE_LINE_BYTES 64
#endif

/* Where kernels differ in it, the largest. */
#if defined(PLATFORM_ARCH_POWERPC) || defined(PLATFORM_ARCH_AARCH64)
#define GASNETT_PAGESHIFT 16
#else
#define GASNETT_PAGESHIFT 12
#endif
#define GASNETT_PAGESIZE (1 << GASNETT_PAGESHIFT)

GASNETT_BEGIN_EXTERNC

/* ---- Machine and process ---- */
/* The host's name in lower case. */
extern const char *gasnett_gethostname(void);
/* The program's full path; empty if that can't be found out. */
extern const char *gasnett_exe_name(void);
/* Processors of this host; 0 if that can't be found out. */
extern int gasnett_cpu_count(void);
/* Bytes of memory of this host; if that can't be found out 0, or a fatal error. */
extern uint64_t gasnett_getPhysMemSz(int failureIsFatal);
/* Release of the interface that the library has: major * 1000000 + minor * 10000 + patch, and as text. */
extern uint64_t gasnett_release_version(void);
extern const char *gasnett_release_version_str(void);

/* Ties the calling thread to processor `rank` modulo their number: 0 when that has worked. */
#define GASNETT_SET_AFFINITY_SUPPORT 1
extern int gasnett_set_affinity(int rank);
extern void gasnett_sched_yield(void);

/* ---- Streams ---- */
extern void gasnett_flush_streams(void);
/* Whoever reads from them finds their end. */
extern void gasnett_close_streams(void);

/* ---- Signals ---- */
typedef void (*gasnett_sighandlerfn_t)(int);
/* Returns the handler before; one that can't be set is a fatal error. */
extern gasnett_sighandlerfn_t gasnett_reghandler(int sigtocatch, gasnett_sighandlerfn_t fp);
/* The name of a signal, like SIGUSR1; null for other numbers. Handlers of signals may call it. */
extern const char *gasnett_signame_fromval(int sigval);

/* ---- Limits ----
 * Raise the soft limit to the hard one, unless GASNET_MAXIMIZE_<name> is no: not 0 on success. */
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

/* What in the build costs speed, a line each; empty if nothing does. */
CONDUIT_INLINE const char *gasnett_performance_warning_str(void) {
#if CONDUIT_TOOLS_DEBUG
    return "        debugging and error checking (GASNET_DEBUG)\n";
#else
    return "";
#endif
}

#endif
