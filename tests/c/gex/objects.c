/* Client, endpoint, team and segment: the queries that lead from each to the others, and the client
 * data of each. */
#include "start.h"

static void before_attach(void) {
  void *owner = &owner, *local = &local;
  uintptr_t length = 1;
  const uintptr_t most = gasnet_getMaxLocalSegmentSize();
  CHECK(gasnet_getMaxGlobalSegmentSize() <= most);
  CHECK(gasnet_getMaxGlobalSegmentSize() >= GASNET_PAGESIZE);
  CHECK_EQ(most % GASNET_PAGESIZE, 0);
  CHECK(gex_EP_QuerySegment(ep) == GEX_SEGMENT_INVALID);
  /* The endpoint has no segment yet, so the outputs must not change. */
  CHECK(gex_Segment_QueryBound(team, me, &owner, &local, &length) != 0);
  CHECK(owner == &owner && local == &local && length == 1);
}

static void relations(void) {
  CHECK(client && ep && team && segment);
  CHECK(gex_EP_QueryClient(ep) == client);
  CHECK(gex_TM_QueryClient(team) == client);
  CHECK(gex_TM_QueryEP(team) == ep);
  CHECK(gex_Segment_QueryClient(segment) == client);
  CHECK(gex_EP_QuerySegment(ep) == segment);
  CHECK_EQ(gex_EP_QueryIndex(ep), 0);
  CHECK(!strcmp(gex_Client_QueryName(client), "OBJECTS"));
  CHECK_EQ(gex_Client_QueryFlags(client), 0);
  CHECK_EQ(gex_EP_QueryFlags(ep), 0);
  CHECK_EQ(gex_TM_QueryFlags(team), 0);
  CHECK_EQ(gex_Segment_QueryFlags(segment), 0);
  CHECK_EQ(gex_TM_QueryRank(team), gex_System_QueryJobRank());
  CHECK_EQ(gex_TM_QuerySize(team), gex_System_QueryJobSize());
}

/* A rank of the primordial team is the same rank in the job. */
static void translations(void) {
  gex_Rank_t rank;
  for (rank = 0; rank < size; ++rank) {
    const gex_EP_Location_t place = gex_TM_TranslateRankToEP(team, rank, 0);
    CHECK_EQ(place.gex_rank, rank);
    CHECK_EQ(place.gex_ep_index, 0);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(team, rank), rank);
    CHECK_EQ(gex_TM_TranslateJobrankToRank(team, rank), rank);
  }
}

static void words(void) {
  int a, b, c, d;
  CHECK(!gex_Client_QueryCData(client) && !gex_EP_QueryCData(ep));
  CHECK(!gex_TM_QueryCData(team) && !gex_Segment_QueryCData(segment));
  gex_Client_SetCData(client, &a);
  gex_EP_SetCData(ep, &b);
  gex_TM_SetCData(team, &c);
  gex_Segment_SetCData(segment, &d);
  CHECK(gex_Client_QueryCData(client) == &a);
  CHECK(gex_EP_QueryCData(ep) == &b);
  CHECK(gex_TM_QueryCData(team) == &c);
  CHECK(gex_Segment_QueryCData(segment) == &d);
  gex_TM_SetCData(team, NULL);
  CHECK(gex_TM_QueryCData(team) == NULL);
  CHECK(gex_Client_QueryCData(client) == &a);
}

/* Both calls must find each rank's segment. The segments of the neighbourhood are mapped here and
 * writable. */
static void segments(uintptr_t bytes) {
  gex_RankInfo_t *near;
  gex_Rank_t near_count, mine, rank, i;
  int *const mine_here = (int *)gex_Segment_QueryAddr(segment);
  gex_System_QueryNbrhdInfo(&near, &near_count, &mine);
  CHECK_EQ(gex_Segment_QuerySize(segment), bytes);
  CHECK_EQ((uintptr_t)gex_Segment_QueryAddr(segment) % GASNET_PAGESIZE, 0);
  mine_here[size] = 0;
  barrier();
  for (rank = 0; rank < size; ++rank) {
    void *owner = NULL, *local = NULL, *owner2 = NULL, *local2 = NULL;
    uintptr_t length = 0, length2 = 0;
    int is_near = 0;
    CHECK_EQ(gex_Segment_QueryBound(team, rank, &owner, &local, &length), 0);
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner2, &local2, &length2, 0));
    CHECK(owner && owner == owner2 && local == local2);
    CHECK_EQ(length, bytes);
    CHECK_EQ(length2, bytes);
    /* Without communication, a peer's segment may be unknown. A rank's own segment is always known.
     * */
    {
      gex_Event_t event = gex_EP_QueryBoundSegmentNB(team, rank, &owner2, NULL, NULL, GEX_FLAG_IMMEDIATE);
      CHECK(event == GEX_EVENT_INVALID || (event == GEX_EVENT_NO_OP && rank != me));
      CHECK(event == GEX_EVENT_NO_OP || owner2 == owner);
    }
    CHECK_EQ(gex_Segment_QueryBound(team, rank, NULL, NULL, NULL), 0);
    for (i = 0; i < near_count; ++i) is_near |= near[i].gex_jobrank == rank;
    CHECK_EQ(is_near, local != NULL);
    if (rank == me) CHECK(local == mine_here && owner == mine_here);
    if (local) ((int *)local)[me] = (int)(1000 * rank + me);
  }
  barrier();
  for (i = 0; i < near_count; ++i)
    CHECK_EQ(mine_here[near[i].gex_jobrank], (int)(1000 * me + near[i].gex_jobrank));
}

/* The segment that attach has announced. */
static char *attached_at;
static uintptr_t attached_bytes;
static int times_attached;

/* Checks the announced segment. Only this rank uses the segment so far, because others write to it
 * only after this call. */
static void attached(void *address, uintptr_t bytes) {
  uintptr_t i;
  attached_at = (char *)address;
  attached_bytes = bytes;
  ++times_attached;
  for (i = 0; i < bytes; ++i) CHECK_EQ(attached_at[i], 0);
  fill(address, bytes, me);
}

static void hook(uintptr_t bytes) {
  CHECK_EQ(times_attached, 1);
  CHECK(attached_at == gex_Segment_QueryAddr(segment));
  CHECK_EQ(attached_bytes, bytes);
  check_filled(attached_at, bytes, me);
  barrier();
}

int main(int argc, char **argv) {
  uintptr_t bytes;
  CHECK(gasnet_client_attach_hook == NULL);
  gasnet_client_attach_hook = &attached;
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "OBJECTS", &argc, &argv, 0), GASNET_OK);
  me = gex_System_QueryJobRank();
  size = gex_System_QueryJobSize();
  check_rank = (int)me;
  before_attach();
  bytes = (uintptr_t)3 * GASNET_PAGESIZE;
  CHECK_EQ(times_attached, 0);
  CHECK_EQ(gex_Segment_Attach(&segment, team, bytes), GASNET_OK);
  hook(bytes);
  relations();
  translations();
  words();
  segments(bytes);
  finish();
  return 0;
}
