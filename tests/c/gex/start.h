/* Joins a job by GASNet-EX and leaves it, in the way that most programs in this folder do. */
#ifndef GEX_START_H
#define GEX_START_H

#include <gasnetex.h>
#include <stdlib.h>

#include "check.h"
#include "refuse.h"

#define MOST_RANKS 64

MAYBE_UNUSED static gex_Client_t client;
MAYBE_UNUSED static gex_EP_t ep;
MAYBE_UNUSED static gex_TM_t team;
MAYBE_UNUSED static gex_Segment_t segment;
MAYBE_UNUSED static gex_Rank_t me, size;
/* The address of each rank's segment in the address space of its owner. */
MAYBE_UNUSED static char *base[MOST_RANKS];

MAYBE_UNUSED static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

/* Returns the rank that follows this one by `distance`, with wrap-around. */
MAYBE_UNUSED static gex_Rank_t neighbour(gex_Rank_t distance) { return (me + distance) % size; }

/* Attaches a segment, or binds a segment in the library's or the program's memory to the first
 * endpoint. TEST_SEGMENT selects which. In the program's memory, each rank's segment has another
 * offset, which is a multiple of 16. */
MAYBE_UNUSED static void bind_segment(uintptr_t bytes) {
  const char *const of = getenv("TEST_SEGMENT");
  char *memory = NULL;
  if (of == NULL) {
    CHECK_EQ(gex_Segment_Attach(&segment, team, bytes), GASNET_OK);
    return;
  }
  if (strcmp(of, "program") == 0) {
    memory = (char *)calloc(1, bytes + 4096);
    CHECK(memory != NULL);
    memory += (4096 - (uintptr_t)memory % 16) % 16 + 16 * (me % 7);
  }
  CHECK_EQ(gex_Segment_Create(&segment, client, memory, bytes, GEX_MK_HOST, 0), GASNET_OK);
  CHECK_EQ(gex_EP_BindSegment(ep, segment, 0), GASNET_OK);
  CHECK_EQ(gex_EP_PublishBoundSegment(team, &ep, 1, 0), GASNET_OK);
}

MAYBE_UNUSED static void start_with(int *argc, char ***argv, gex_AM_Entry_t *handlers, size_t count, uintptr_t bytes,
                                    gex_Flags_t flags) {
  gex_Rank_t rank;
  /* The refusal applies to this thread and to threads started from here on. The library's threads
   * must be among those. */
  if (getenv("TEST_COPIES")) refuse_copies(strcmp(getenv("TEST_COPIES"), "none") == 0);
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "TEST", argc, argv, flags), GASNET_OK);
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  check_rank = (int)me;
  CHECK(size <= MOST_RANKS);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, handlers, count), GASNET_OK);
  bind_segment(bytes);
  for (rank = 0; rank < size; ++rank) {
    void *owner = NULL;
    uintptr_t length = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, NULL, &length, 0));
    CHECK(owner != NULL);
    CHECK_EQ(length, bytes);
    base[rank] = (char *)owner;
  }
  /* From its first wait on, a rank handles the messages of peers, whose handlers use these
   * variables. The barrier keeps every rank from sending before all have set them. */
  barrier();
}

MAYBE_UNUSED static void start(int *argc, char ***argv, gex_AM_Entry_t *handlers, size_t count, uintptr_t bytes) {
  start_with(argc, argv, handlers, count, bytes, 0);
}

/* Leaves the job, which succeeds once all ranks have called this function. */
MAYBE_UNUSED static void finish(void) {
  barrier();
  gasnet_exit(0);
}

#endif
