/* Collective operations other than barriers: broadcasts and reductions.
 *
 * Several operations may overlap. All ranks of a team must start the same operations in the same
 * order. Operations make progress whenever any GASNet call polls. */
#ifndef CONDUIT_GEX_COLL_H
#define CONDUIT_GEX_COLL_H

#include <gasnet_fwd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reduces `count` elements of `left` with those of `right_and_result` elementwise, and stores
 * the results in `right_and_result`. The function may run on any thread that polls, and must not
 * call GASNet. */
typedef void (*gex_Coll_ReduceFn_t)(const void *left, void *right_and_result, size_t count, const void *cdata);

/* The memory belongs to the operation until its event is complete. `source` may equal `result`.
 * Flags must be 0. */

gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void *result, const void *source, size_t bytes,
                                 gex_Flags_t flags);

/* GEX_DT_USER supports only GEX_OP_USER and GEX_OP_USER_NC; with the latter, lower ranks are the
 * left operands. Repeated reductions of the same data give the same bits on all ranks. */

gex_Event_t gex_Coll_ReduceToOneNB(gex_TM_t tm, gex_Rank_t root, void *result, const void *source, gex_DT_t type,
                                   size_t element_bytes, size_t count, gex_OP_t operation,
                                   gex_Coll_ReduceFn_t user_operation, void *user_cdata, gex_Flags_t flags);
gex_Event_t gex_Coll_ReduceToAllNB(gex_TM_t tm, void *result, const void *source, gex_DT_t type,
                                   size_t element_bytes, size_t count, gex_OP_t operation,
                                   gex_Coll_ReduceFn_t user_operation, void *user_cdata, gex_Flags_t flags);

#ifdef __cplusplus
}
#endif

#endif
