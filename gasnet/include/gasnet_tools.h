/* GASNet's portable tools, specification 1.20, by Conduit.
 *
 * Utilities that need no communication: timers, atomic operations, fences, locks, settings,
 * backtraces, and platform names. A program that also uses GASNet includes gasnetex.h or
 * gasnet.h first. Any other program links libgasnet_tools-seq or -par and may define
 * GASNETT_THREAD_SINGLE or GASNETT_THREAD_SAFE. Many of the functions are macros, so do not take
 * their addresses.
 *
 * Names that begin with gasnett_ or GASNETT_ are the interface. Those that begin with conduit_
 * or CONDUIT_ are not. */
#ifndef CONDUIT_GASNET_TOOLS_H
#define CONDUIT_GASNET_TOOLS_H

#include "gasnet_tools/basics.h"

#include "gasnet_tools/annotations.h"
#include "gasnet_tools/atomics.h"
#include "gasnet_tools/bytes.h"
#include "gasnet_tools/diagnostics.h"
#include "gasnet_tools/environment.h"
#include "gasnet_tools/failures.h"
#include "gasnet_tools/fences.h"
#include "gasnet_tools/formats.h"
#include "gasnet_tools/locks.h"
#include "gasnet_tools/memory.h"
#include "gasnet_tools/system.h"
#include "gasnet_tools/threadkeys.h"
#include "gasnet_tools/timers.h"
#include "gasnet_tools/tracing.h"

#endif
