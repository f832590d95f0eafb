/* The place of GASNet-EX's collectives beyond barriers. This version has none of them; what it has is in gasnetex.h. */
#ifndef CONDUIT_GASNET_COLL_H
#define CONDUIT_GASNET_COLL_H

#include <gasnetex.h>

#endif
