/* Joining a job by GASNet-EX and leaving it, as most programs here do. */
#ifndef GEX_START_H
#define GEX_START_H

#include <gasnetex.h>

#include "check.h"

#define MOST_RANKS 64

MAYBE_UNUSED static gex_Client_t client;
MAYBE_UNUSED static gex_EP_t ep;
MAYBE_UNUSED static gex_TM_t team;
MAYBE_UNUSED static gex_Segment_t segment;
MAYBE_UNUSED static gex_Rank_t me, size;
/* Where each rank's segment begins, at its owner. */
MAYBE_UNUSED static char *base[MOST_RANKS];

MAYBE_UNUSED static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

/* The rank that many places on, round the job. */
MAYBE_UNUSED static gex_Rank_t neighbour(gex_Rank_t distance) { return (me + distance) % size; }

MAYBE_UNUSED static void start_with(int *argc, char ***argv, gex_AM_Entry_t *handlers, size_t count, uintptr_t bytes,
                                    gex_Flags_t flags) {
  gex_Rank_t rank;
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "TEST", argc, argv, flags), GASNET_OK);
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  check_rank = (int)me;
  CHECK(size <= MOST_RANKS);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, handlers, count), GASNET_OK);
  CHECK_EQ(gex_Segment_Attach(&segment, team, bytes), GASNET_OK);
  for (rank = 0; rank < size; ++rank) {
    void *owner = NULL;
    uintptr_t length = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, NULL, &length, 0));
    CHECK(owner != NULL);
    CHECK_EQ(length, bytes);
    base[rank] = (char *)owner;
  }
}

MAYBE_UNUSED static void start(int *argc, char ***argv, gex_AM_Entry_t *handlers, size_t count, uintptr_t bytes) {
  start_with(argc, argv, handlers, count, bytes, 0);
}

/* The job ends well when all ranks have come so far. */
MAYBE_UNUSED static void finish(void) {
  barrier();
  gasnet_exit(0);
}

#endif
