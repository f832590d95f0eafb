/* Segments that are created and bound to the first endpoint instead of being attached. Tests their
 * queries, which ranks know them, and refused calls. Some ranks have a segment in their own memory,
 * others have one in the library's memory, and the last of four ranks has none. */
#include <gasnet.h>
#include <stdlib.h>

#include "check.h"
#include "refuse.h"

#define BYTES 5000

static gex_Client_t client;
static gex_EP_t ep;
static gex_TM_t team;
static gex_Rank_t me, size;
static char memory[BYTES + 32];

static int has_one(gex_Rank_t rank) { return rank % 4 != 3; }

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

/* Returns whether this rank knows the segment of `rank`. If so, stores the segment's address. */
static int knows(gex_Rank_t rank, char **owner) {
  void *there = NULL, *again = NULL, *here = NULL;
  uintptr_t bytes = 0, same = 0;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &there, &here, &bytes, 0));
  if (gex_Segment_QueryBound(team, rank, &again, NULL, &same)) {
    CHECK(bytes == 0 && there == NULL && here == NULL);
    return 0;
  }
  CHECK(there == again);
  CHECK_EQ(bytes, BYTES);
  CHECK_EQ(same, BYTES);
  CHECK(here == (rank == me ? there : NULL));
  *owner = (char *)there;
  return 1;
}

static void refusals(gex_Segment_t segment) {
  gex_System_SetVerboseErrors(0);
  CHECK_EQ(gex_EP_BindSegment(GEX_EP_INVALID, segment, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_BindSegment((gex_EP_t)(void *)client, segment, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_BindSegment(ep, GEX_SEGMENT_INVALID, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_BindSegment(ep, (gex_Segment_t)(void *)client, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_BindSegment(ep, segment, 1), GASNET_ERR_BAD_ARG);
  gex_System_SetVerboseErrors(1);
}

int main(int argc, char **argv) {
  gex_Segment_t mine = GEX_SEGMENT_INVALID, other = GEX_SEGMENT_INVALID, wild = GEX_SEGMENT_INVALID;
  gex_TM_t half = GEX_TM_INVALID;
  gex_Rank_t rank;
  gasnet_seginfo_t *all;
  char *there = NULL;
  int number = 0;
  if (getenv("TEST_COPIES")) refuse_copies(0);
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "TEST", &argc, &argv, 0), GASNET_OK);
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  check_rank = (int)me;
  CHECK_EQ(gex_Segment_Create(&other, client, memory, 8, GEX_MK_HOST, 0), GASNET_OK);
  refusals(other);
  CHECK_EQ(gex_Segment_Create(&wild, client, (void *)(uintptr_t)64, 8, GEX_MK_HOST, 0), GASNET_OK);
  gex_System_SetVerboseErrors(0);
  CHECK_EQ(gex_EP_BindSegment(ep, wild, 0), GASNET_ERR_BAD_ARG);
  gex_System_SetVerboseErrors(1);
  gex_Segment_Destroy(wild, 0);
  /* No segment has been bound yet. */
  CHECK_EQ(gex_EP_PublishBoundSegment(team, &ep, 1, 0), GASNET_OK);
  CHECK(gex_EP_QuerySegment(ep) == GEX_SEGMENT_INVALID);
  for (rank = 0; rank < size; ++rank) CHECK(!knows(rank, &there));
  if (has_one(me)) {
    char *const at = me % 2 ? NULL : memory + 16;
    CHECK_EQ(gex_Segment_Create(&mine, client, at, BYTES, GEX_MK_HOST, 0), GASNET_OK);
    CHECK_EQ(gex_EP_BindSegment(ep, mine, 0), GASNET_OK);
    CHECK(knows(me, &there));
    CHECK(there == gex_Segment_QueryAddr(mine) && (at == NULL || there == at));
    CHECK_EQ(gex_Segment_QuerySize(mine), BYTES);
    gex_System_SetVerboseErrors(0);
    CHECK_EQ(gex_EP_BindSegment(ep, other, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_EP_BindSegment(ep, mine, 0), GASNET_ERR_BAD_ARG);
    gex_System_SetVerboseErrors(1);
  }
  CHECK(gex_EP_QuerySegment(ep) == mine);
  gex_Segment_Destroy(other, 0);
  /* First each half publishes its segments, then all ranks do. Publishing them again has no effect.
   * */
  gex_TM_Split(&half, team, (int)(me % 2), -(int)me, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
  CHECK_EQ(gex_EP_PublishBoundSegment(half, &ep, 1, 0), GASNET_OK);
  for (rank = 0; rank < size; ++rank) CHECK_EQ(knows(rank, &there), has_one(rank) && rank % 2 == me % 2);
  gex_TM_Destroy(half, NULL, 0);
  barrier();
  CHECK_EQ(gex_EP_PublishBoundSegment(team, &ep, 1, 0), GASNET_OK);
  CHECK_EQ(gex_EP_PublishBoundSegment(team, &ep, has_one(me), 0), GASNET_OK);
  all = (gasnet_seginfo_t *)calloc(size, sizeof(*all));
  CHECK_EQ(gasnet_getSegmentInfo(all, (int)size), GASNET_OK);
  for (rank = 0; rank < size; ++rank) {
    CHECK_EQ(knows(rank, &there), has_one(rank));
    CHECK_EQ(all[rank].size, has_one(rank) ? BYTES : 0);
    if (!has_one(rank)) continue;
    CHECK(all[rank].addr == there);
    /* Each rank writes a word of its own. The word of rank 0 is the last one in the segment. */
    number = (int)me;
    gex_RMA_PutBlocking(team, rank, there + BYTES - 4 * (me + 1), &number, 4, 0);
  }
  barrier();
  if (has_one(me)) {
    const char *const end = (char *)gex_Segment_QueryAddr(mine) + BYTES;
    for (rank = 0; rank < size; ++rank) {
      memcpy(&number, end - 4 * (rank + 1), 4);
      CHECK_EQ(number, rank);
    }
  }
  /* Once a segment is bound, attach must be refused. */
  gex_System_SetVerboseErrors(0);
  CHECK(gex_Segment_Attach(&other, team, GASNET_PAGESIZE) != GASNET_OK);
  gex_System_SetVerboseErrors(1);
  free(all);
  barrier();
  gasnet_exit(0);
  return 0;
}
