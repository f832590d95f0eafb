/* The place of GASNet-EX's remote atomics. This version has none of them; what it has is in gasnetex.h. */
#ifndef CONDUIT_GASNET_RATOMIC_H
#define CONDUIT_GASNET_RATOMIC_H

#include <gasnetex.h>

#endif
