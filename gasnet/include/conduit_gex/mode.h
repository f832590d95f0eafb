/* The client's choice of threading mode, checks, segment mode and conduit, made by the macros
 * that GASNet defines. */
#ifndef CONDUIT_GEX_MODE_H
#define CONDUIT_GEX_MODE_H

#include <gasnet_config.h>

/* In the include folder of a conduit's build, gasnet_core.h names the conduit and the build for
 * clients that do not define them. */
#if defined(__has_include)
  #if __has_include(<gasnet_core.h>)
    #include <gasnet_core.h>
  #endif
#endif

/* ---- threads ---- */

#if defined(GASNET_SEQ) + defined(GASNET_PARSYNC) + defined(GASNET_PAR) != 1
  #error "define exactly one of GASNET_SEQ, GASNET_PARSYNC and GASNET_PAR"
#endif
#if defined(GASNET_SEQ)
  #undef GASNET_SEQ
  #define GASNET_SEQ 1
  #define CONDUIT_GEX_MODE seq
  #define CONDUIT_GEX_MODE_STR "SEQ"
#elif defined(GASNET_PARSYNC)
  #undef GASNET_PARSYNC
  #define GASNET_PARSYNC 1
  #define CONDUIT_GEX_MODE parsync
  #define CONDUIT_GEX_MODE_STR "PARSYNC"
#else
  #undef GASNET_PAR
  #define GASNET_PAR 1
  #define CONDUIT_GEX_MODE par
  #define CONDUIT_GEX_MODE_STR "PAR"
#endif

/* ---- checks ---- */

#if defined(GASNET_DEBUG) && defined(GASNET_NDEBUG)
  #error "GASNET_DEBUG and GASNET_NDEBUG exclude each other"
#endif
#if defined(GASNET_DEBUG)
  #undef GASNET_DEBUG
  #define GASNET_DEBUG 1
  #define CONDUIT_GEX_CHECKED 1
  #define CONDUIT_GEX_BUILD debug
  #define CONDUIT_GEX_BUILD_STR "debug"
#else
  #undef GASNET_NDEBUG
  #define GASNET_NDEBUG 1
  #define CONDUIT_GEX_CHECKED 0
  #define CONDUIT_GEX_BUILD ndebug
  #define CONDUIT_GEX_BUILD_STR "nodebug"
#endif

/* ---- segment ---- */

/* One library supports all segment modes; all ranks of a job must use the same one. Segment
 * large is as fast as segment fast. */
#if defined(GASNET_SEGMENT_FAST) + defined(GASNET_SEGMENT_LARGE) + defined(GASNET_SEGMENT_EVERYTHING) > 1
  #error "define at most one of GASNET_SEGMENT_FAST, GASNET_SEGMENT_LARGE and GASNET_SEGMENT_EVERYTHING"
#endif
#if defined(GASNET_SEGMENT_LARGE)
  #undef GASNET_SEGMENT_LARGE
  #define GASNET_SEGMENT_LARGE 1
  #define CONDUIT_GEX_SEGMENT_STR "LARGE"
  #define GASNET_ALIGNED_SEGMENTS 0
#elif defined(GASNET_SEGMENT_EVERYTHING)
  #undef GASNET_SEGMENT_EVERYTHING
  #define GASNET_SEGMENT_EVERYTHING 1
  #define CONDUIT_GEX_SEGMENT_STR "EVERYTHING"
  /* All segments start at address 0. */
  #define GASNET_ALIGNED_SEGMENTS 1
#else
  #undef GASNET_SEGMENT_FAST
  #define GASNET_SEGMENT_FAST 1
  #define CONDUIT_GEX_SEGMENT_STR "FAST"
  #define GASNET_ALIGNED_SEGMENTS 0
#endif

/* Ranks on the same host share memory. */
#define GASNET_PSHM 1

/* ---- conduit ---- */

/* The library is the same for all conduits. The name selects how a program run without a
 * launcher starts its ranks. */
#if defined(GASNET_CONDUIT_SMP) || defined(GASNET_SMP_CONDUIT)
  #define CONDUIT_GEX_CONDUIT SMP
  #undef GASNET_SMP_CONDUIT
  #undef GASNET_CONDUIT_SMP
  #define GASNET_SMP_CONDUIT 1
  #define GASNET_CONDUIT_SMP 1
  #define GASNET_CONDUIT_NAME smp
  #define GASNET_CONDUIT_NAME_STR "smp"
  #define CONDUIT_GEX_IDENT "$GASNetConduitName: SMP $"
#elif defined(GASNET_CONDUIT_UDP) || defined(GASNET_UDP_CONDUIT)
  #undef GASNET_UDP_CONDUIT
  #undef GASNET_CONDUIT_UDP
  #define GASNET_UDP_CONDUIT 1
  #define GASNET_CONDUIT_UDP 1
  #define GASNET_CONDUIT_NAME udp
  #define GASNET_CONDUIT_NAME_STR "udp"
  #define CONDUIT_GEX_IDENT "$GASNetConduitName: UDP $"
#elif defined(GASNET_CONDUIT_OFI) || defined(GASNET_OFI_CONDUIT)
  #undef GASNET_OFI_CONDUIT
  #undef GASNET_CONDUIT_OFI
  #define GASNET_OFI_CONDUIT 1
  #define GASNET_CONDUIT_OFI 1
  #define GASNET_CONDUIT_NAME ofi
  #define GASNET_CONDUIT_NAME_STR "ofi"
  #define CONDUIT_GEX_IDENT "$GASNetConduitName: OFI $"
#else
  #undef GASNET_CONDUIT_CONDUIT
  #undef GASNET_CONDUIT_CONDUIT_
  #define GASNET_CONDUIT_CONDUIT 1
  #define GASNET_CONDUIT_NAME conduit
  #define GASNET_CONDUIT_NAME_STR "conduit"
  #define CONDUIT_GEX_IDENT "$GASNetConduitName: CONDUIT $"
#endif

#define GASNET_CORE_NAME GASNET_CONDUIT_NAME
#define GASNET_CORE_NAME_STR GASNET_CONDUIT_NAME_STR
#define GASNET_CORE_VERSION 0.1
#define GASNET_CORE_VERSION_STR "0.1"
#define GASNET_EXTENDED_NAME GASNET_CONDUIT_NAME
#define GASNET_EXTENDED_NAME_STR GASNET_CONDUIT_NAME_STR
#define GASNET_EXTENDED_VERSION 0.1
#define GASNET_EXTENDED_VERSION_STR "0.1"

#define GASNET_CONFIG_STRING \
  "RELEASE=2025.8.0,SPEC=0.19,CONDUIT=" GASNET_CONDUIT_NAME_STR "(Conduit-0.1),THREADMODEL=" CONDUIT_GEX_MODE_STR \
  ",SEGMENT=" CONDUIT_GEX_SEGMENT_STR ",PTR=64bit,PSHM," CONDUIT_GEX_BUILD_STR

#endif
