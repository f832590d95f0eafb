/* GASNet-1's collective operations, for the team of all ranks or any other team. Each image is a
 * rank.
 *
 * Flags must name exactly one kind of synchronisation for in and one for out. All ranks must
 * start the same operations in the same order. Operations make progress whenever any GASNet call
 * polls. */
#ifndef CONDUIT_GEX_COLL1_H
#define CONDUIT_GEX_COLL1_H

#include <gasnetex.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GASNET_COLL_IN_NOSYNC 0x001
#define GASNET_COLL_IN_MYSYNC 0x002
#define GASNET_COLL_IN_ALLSYNC 0x004
#define GASNET_COLL_OUT_NOSYNC 0x008
#define GASNET_COLL_OUT_MYSYNC 0x010
#define GASNET_COLL_OUT_ALLSYNC 0x020
/* Addresses are local to each rank and may lie anywhere, inside or outside segments. */
#define GASNET_COLL_LOCAL 0x080
#define GASNET_COLL_DST_IN_SEGMENT 0x400
#define GASNET_COLL_SRC_IN_SEGMENT 0x800

typedef gex_Rank_t gasnet_image_t;
typedef gex_TM_t gasnet_team_handle_t;
#define GASNET_TEAM_ALL CONDUIT_GEX_TEAM

typedef gex_Event_t gasnet_coll_handle_t;
#define GASNET_COLL_INVALID_HANDLE GEX_EVENT_INVALID

#define CONDUIT_GEX_COLL_BROADCAST 0U
#define CONDUIT_GEX_COLL_SCATTER 1U
#define CONDUIT_GEX_COLL_GATHER 2U
#define CONDUIT_GEX_COLL_GATHER_ALL 3U
#define CONDUIT_GEX_COLL_EXCHANGE 4U
gex_Event_t conduit_gex_collective(unsigned int kind, gex_TM_t team, void *destination, gex_Rank_t root,
                                   const void *source, size_t bytes, int flags);

CONDUIT_GEX_INLINE gex_Event_t gasnet_coll_broadcast_nb(gasnet_team_handle_t team_, void *destination_, gasnet_image_t root_, void *source_, size_t bytes_, int flags_) {
  return conduit_gex_collective(CONDUIT_GEX_COLL_BROADCAST, team_, destination_, root_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE void gasnet_coll_broadcast(gasnet_team_handle_t team_, void *destination_, gasnet_image_t root_, void *source_, size_t bytes_, int flags_) {
  gex_Event_Wait(conduit_gex_collective(CONDUIT_GEX_COLL_BROADCAST, team_, destination_, root_, source_, bytes_, flags_));
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_coll_scatter_nb(gasnet_team_handle_t team_, void *destination_, gasnet_image_t root_, void *source_, size_t bytes_, int flags_) {
  return conduit_gex_collective(CONDUIT_GEX_COLL_SCATTER, team_, destination_, root_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE void gasnet_coll_scatter(gasnet_team_handle_t team_, void *destination_, gasnet_image_t root_, void *source_, size_t bytes_, int flags_) {
  gex_Event_Wait(conduit_gex_collective(CONDUIT_GEX_COLL_SCATTER, team_, destination_, root_, source_, bytes_, flags_));
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_coll_gather_nb(gasnet_team_handle_t team_, gasnet_image_t root_, void *destination_, void *source_, size_t bytes_, int flags_) {
  return conduit_gex_collective(CONDUIT_GEX_COLL_GATHER, team_, destination_, root_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE void gasnet_coll_gather(gasnet_team_handle_t team_, gasnet_image_t root_, void *destination_, void *source_, size_t bytes_, int flags_) {
  gex_Event_Wait(conduit_gex_collective(CONDUIT_GEX_COLL_GATHER, team_, destination_, root_, source_, bytes_, flags_));
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_coll_gather_all_nb(gasnet_team_handle_t team_, void *destination_, void *source_, size_t bytes_, int flags_) {
  return conduit_gex_collective(CONDUIT_GEX_COLL_GATHER_ALL, team_, destination_, 0, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE void gasnet_coll_gather_all(gasnet_team_handle_t team_, void *destination_, void *source_, size_t bytes_, int flags_) {
  gex_Event_Wait(conduit_gex_collective(CONDUIT_GEX_COLL_GATHER_ALL, team_, destination_, 0, source_, bytes_, flags_));
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_coll_exchange_nb(gasnet_team_handle_t team_, void *destination_, void *source_, size_t bytes_, int flags_) {
  return conduit_gex_collective(CONDUIT_GEX_COLL_EXCHANGE, team_, destination_, 0, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE void gasnet_coll_exchange(gasnet_team_handle_t team_, void *destination_, void *source_, size_t bytes_, int flags_) {
  gex_Event_Wait(conduit_gex_collective(CONDUIT_GEX_COLL_EXCHANGE, team_, destination_, 0, source_, bytes_, flags_));
}

#define gasnet_coll_try_sync(handle) gex_Event_Test(handle)
#define gasnet_coll_try_sync_some(handles, count) gex_Event_TestSome(handles, count, 0)
#define gasnet_coll_try_sync_all(handles, count) gex_Event_TestAll(handles, count, 0)
#define gasnet_coll_wait_sync(handle) gex_Event_Wait(handle)
#define gasnet_coll_wait_sync_some(handles, count) gex_Event_WaitSome(handles, count, 0)
#define gasnet_coll_wait_sync_all(handles, count) gex_Event_WaitAll(handles, count, 0)

/* ---- barriers, which exist only for the team of all ranks ---- */

void conduit_gex_not_all(const char *call, gex_TM_t team) CONDUIT_GEX_NORETURN;

CONDUIT_GEX_INLINE void conduit_gex_all(const char *call_, gex_TM_t team_) {
  if (team_ != GASNET_TEAM_ALL) conduit_gex_not_all(call_, team_);
}

CONDUIT_GEX_INLINE void gasnet_coll_barrier_notify(gasnet_team_handle_t team_, int id_, int flags_) {
  conduit_gex_all("gasnet_coll_barrier_notify", team_);
  gasnet_barrier_notify(id_, flags_);
}

CONDUIT_GEX_INLINE int gasnet_coll_barrier_wait(gasnet_team_handle_t team_, int id_, int flags_) {
  conduit_gex_all("gasnet_coll_barrier_wait", team_);
  return gasnet_barrier_wait(id_, flags_);
}

CONDUIT_GEX_INLINE int gasnet_coll_barrier_try(gasnet_team_handle_t team_, int id_, int flags_) {
  conduit_gex_all("gasnet_coll_barrier_try", team_);
  return gasnet_barrier_try(id_, flags_);
}

CONDUIT_GEX_INLINE int gasnet_coll_barrier(gasnet_team_handle_t team_, int id_, int flags_) {
  conduit_gex_all("gasnet_coll_barrier", team_);
  return gasnet_barrier(id_, flags_);
}

CONDUIT_GEX_INLINE int gasnet_coll_barrier_result(gasnet_team_handle_t team_, int *id_) {
  conduit_gex_all("gasnet_coll_barrier_result", team_);
  return gasnet_barrier_result(id_);
}

/* There is no run-time search for algorithms, so there is no state to write. */
#define gasnet_coll_dumpTuningState(file, team) ((void)(file), (void)(team))
#define gasnet_coll_dumpProfile(file, team) ((void)(file), (void)(team))

#ifdef __cplusplus
}
#endif

#endif
