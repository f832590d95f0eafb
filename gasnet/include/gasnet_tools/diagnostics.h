/* Self-checks of the library, run from within a client. */
#ifndef CONDUIT_TOOLS_DIAGNOSTICS_H
#define CONDUIT_TOOLS_DIAGNOSTICS_H

#include "basics.h"

GASNETT_BEGIN_EXTERNC

/* Runs the checks whose letters are in `sections`, or all checks if it is null or empty. Each
 * check runs `iters` times in each of `threads` threads. For each thread in which a check fails,
 * writes a line that begins with ERROR. Returns the number of these lines. */
extern int conduit_tools_run_diagnostics(int iters, int threads, const char *sections, uint64_t seed);

GASNETT_END_EXTERNC

/* The checks need no handlers, so the table is empty. */
#define gasnett_diagnostic_gethandlers(htable, count) ((void)(*(htable) = NULL), (void)(*(count) = 0))
/* The checks examine only this process, not the team's memory. */
#define gasnett_run_diagnostics(iters, threads, sections, team, segment, peer, peersegment, seed) \
    ((void)(team), (void)(segment), (void)(peer), (void)(peersegment), \
     conduit_tools_run_diagnostics((iters), (threads), (sections), (uint64_t)(seed)))

#endif
