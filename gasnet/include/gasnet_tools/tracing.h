/* Tracing and statistics of GASNet's debug builds. The library records neither, so these macros
 * cost nothing.
 *
 * Arguments of the printing macros are checked against their format and not evaluated; those of
 * the others are evaluated once. */
#ifndef CONDUIT_TOOLS_TRACING_H
#define CONDUIT_TOOLS_TRACING_H

#include "annotations.h"

/* Realm takes this function's address. */
GASNETT_FORMAT_PRINTF(_gasnett_trace_printf_noop, 1, 2,
CONDUIT_LOCAL void _gasnett_trace_printf_noop(const char *format, ...)) { (void)format; }

#define CONDUIT_TRACE_NOTHING(...) (1 ? (void)0 : _gasnett_trace_printf_noop(__VA_ARGS__))

#define GASNETT_TRACE_ENABLED 0
#define GASNETT_TRACE_PRINTF(...) CONDUIT_TRACE_NOTHING(__VA_ARGS__)
#define GASNETT_TRACE_PRINTF_FORCE(...) CONDUIT_TRACE_NOTHING(__VA_ARGS__)
#define GASNETT_STATS_PRINTF(...) CONDUIT_TRACE_NOTHING(__VA_ARGS__)
#define GASNETT_STATS_PRINTF_FORCE(...) CONDUIT_TRACE_NOTHING(__VA_ARGS__)
#define GASNETT_STATS_INIT(callbackfn) ((void)(callbackfn))
#define GASNETT_STATS_DUMP(reset) ((void)(reset))

#define GASNETT_TRACE_GETMASK() ""
#define GASNETT_TRACE_SETMASK(mask) ((void)(mask))
#define GASNETT_STATS_GETMASK() ""
#define GASNETT_STATS_SETMASK(mask) ((void)(mask))
#define GASNETT_TRACE_GET_TRACELOCAL() (0)
#define GASNETT_TRACE_SET_TRACELOCAL(value) ((void)(value))

#define GASNETT_TRACE_SETSOURCELINE(file, line) ((void)(file), (void)(line))
#define GASNETT_TRACE_GETSOURCELINE(pfile, pline) ((void)(*(pfile) = NULL), (void)(*(pline) = 0))
#define GASNETT_TRACE_FREEZESOURCELINE() ((void)0)
#define GASNETT_TRACE_UNFREEZESOURCELINE() ((void)0)

#endif
