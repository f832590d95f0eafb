/* Collective operations: GASNet-EX's broadcasts and reductions, and those of GASNet-1.
 * GASNet-EX's barriers are in gasnetex.h. */
#ifndef CONDUIT_GASNET_COLL_H
#define CONDUIT_GASNET_COLL_H

#include <gasnetex.h>

#include <conduit_gex/coll.h>
#include <conduit_gex/coll1.h>

#endif
