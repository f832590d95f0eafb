/* GASNet-EX's collectives: broadcasts and reductions. Barriers are in gasnetex.h. */
#ifndef CONDUIT_GASNET_COLL_H
#define CONDUIT_GASNET_COLL_H

#include <gasnetex.h>

#include <conduit_gex/coll.h>

#endif
