/* The place of GASNet-EX's vectors, indexed and strided puts and gets. This version has none of them; what it has is in gasnetex.h. */
#ifndef CONDUIT_GASNET_VIS_H
#define CONDUIT_GASNET_VIS_H

#include <gasnetex.h>

#endif
