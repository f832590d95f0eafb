/* The place of GASNet-EX's memory kinds. This version has none of them; what it has is in gasnetex.h. */
#ifndef CONDUIT_GASNET_MK_H
#define CONDUIT_GASNET_MK_H

#include <gasnetex.h>

#endif
