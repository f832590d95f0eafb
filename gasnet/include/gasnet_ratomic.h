/* GASNet-EX's remote atomics: operations on numbers in segments, and the domains that name their
 * data type and the allowed operations.
 *
 * If the rank is mapped here and the operation is a compile-time constant, the operation is
 * performed inline. The library performs all other operations. All of them are atomic with
 * respect to each other. */
#ifndef CONDUIT_GASNET_RATOMIC_H
#define CONDUIT_GASNET_RATOMIC_H

#include <gasnetex.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct conduit_gex_ad_s *gex_AD_t;
#define GEX_AD_INVALID ((gex_AD_t)(uintptr_t)0)

/* Collective over the team. All of its ranks must pass the same arguments. */
void gex_AD_Create(gex_AD_t *ad, gex_TM_t tm, gex_DT_t type, gex_OP_t operations, gex_Flags_t flags);
void gex_AD_Destroy(gex_AD_t ad);

gex_Flags_t gex_AD_QueryFlags(gex_AD_t ad);
gex_TM_t gex_AD_QueryTM(gex_AD_t ad);
gex_DT_t gex_AD_QueryDT(gex_AD_t ad);
gex_OP_t gex_AD_QueryOps(gex_AD_t ad);
void gex_AD_SetCData(gex_AD_t ad, const void *value);
void *gex_AD_QueryCData(gex_AD_t ad);

#ifdef __cplusplus
}
#endif

#include <conduit_gex/ratomic.h>

#endif
