/* The library's checks of itself, run from within a client. */
#ifndef CONDUIT_TOOLS_DIAGNOSTICS_H
#define CONDUIT_TOOLS_DIAGNOSTICS_H

#include "basics.h"

GASNETT_BEGIN_EXTERNC

/* Runs the checks whose letters are in `sections` (null or empty: all) so often, some of them in so many threads at once.
 * Writes a line that begins with ERROR for each that fails, and returns their number. */
extern int conduit_tools_run_diagnostics(int iters, int threads, const char *sections, uint64_t seed);

GASNETT_END_EXTERNC

/* They need no handlers: the table is empty. */
#define gasnett_diagnostic_gethandlers(htable, count) ((void)(*(htable) = NULL), (void)(*(count) = 0))
/* They look at this process only, not at the team's memory. */
#define gasnett_run_diagnostics(iters, threads, sections, team, segment, peer, peersegment, seed) \
    ((void)(team), (void)(segment), (void)(peer), (void)(peersegment), \
     conduit_tools_run_diagnostics((iters), (threads), (sections), (uint64_t)(seed)))

#endif
