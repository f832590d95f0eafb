/* Calls that test and wait for single events, arrays of events and implicit operations, and
 * access regions. Completed events are recognised inline. */
#ifndef CONDUIT_GEX_EVENT_H
#define CONDUIT_GEX_EVENT_H

#include <conduit_gex/entries.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tests do not poll, but waits do. */

CONDUIT_GEX_INLINE int gex_Event_Test(gex_Event_t event_) {
  return event_ ? conduit_gex_event_test(event_) : GASNET_OK;
}

CONDUIT_GEX_INLINE void gex_Event_Wait(gex_Event_t event_) {
  if (event_) conduit_gex_event_wait(event_);
}

CONDUIT_GEX_INLINE int gex_Event_TestSome(gex_Event_t *events_, size_t count_, gex_Flags_t flags_) {
  (void)flags_;
  return conduit_gex_event_test_some(events_, count_);
}

CONDUIT_GEX_INLINE int gex_Event_TestAll(gex_Event_t *events_, size_t count_, gex_Flags_t flags_) {
  (void)flags_;
  return conduit_gex_event_test_all(events_, count_);
}

CONDUIT_GEX_INLINE void gex_Event_WaitSome(gex_Event_t *events_, size_t count_, gex_Flags_t flags_) {
  (void)flags_;
  conduit_gex_event_wait_some(events_, count_);
}

CONDUIT_GEX_INLINE void gex_Event_WaitAll(gex_Event_t *events_, size_t count_, gex_Flags_t flags_) {
  (void)flags_;
  conduit_gex_event_wait_all(events_, count_);
}

CONDUIT_GEX_INLINE gex_Event_t gex_Event_QueryLeaf(gex_Event_t root_, gex_EC_t category_) {
  (void)category_;
  return root_ ? conduit_gex_event_leaf(root_) : GEX_EVENT_INVALID;
}

/* If all ranks are mapped, an implicit operation is complete when its call returns. */

CONDUIT_GEX_INLINE int gex_NBI_Test(gex_EC_t categories_, gex_Flags_t flags_) {
#if !CONDUIT_GEX_CHECKED
  if (CONDUIT_GEX_LIKELY(conduit_gex_job.all_mapped)) return GASNET_OK;
#endif
  return conduit_gex_nbi_test(categories_, flags_);
}

CONDUIT_GEX_INLINE void gex_NBI_Wait(gex_EC_t categories_, gex_Flags_t flags_) {
  conduit_gex_nbi_wait(categories_, flags_);
}

void gex_NBI_BeginAccessRegion(gex_Flags_t flags);

CONDUIT_GEX_INLINE gex_Event_t gex_NBI_EndAccessRegion(gex_Flags_t flags_) {
  return conduit_gex_nbi_end_region(flags_);
}

#ifdef __cplusplus
}
#endif

#endif
