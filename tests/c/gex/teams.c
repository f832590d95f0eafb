/* Teams: made by colors and by lists, from other teams, overlapping, and many at once. Tests their
 * queries, messages, puts and gets to their ranks, their collective operations, and pairs of
 * endpoints. */
#include <gasnet_coll.h>

#include <stdlib.h>

#include "start.h"

enum { COUNT = GEX_AM_INDEX_BASE, NOTE };

static int counted;
static char noted;

static void count(gex_Token_t token) {
  (void)token;
  ++counted;
}

static void note(gex_Token_t token, void *bytes, size_t length) {
  (void)token;
  CHECK_EQ(length, 1);
  noted = *(const char *)bytes;
}

static gex_AM_Entry_t handlers[] = {
  { COUNT, (gex_AM_Fn_t)count, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, NULL, "count" },
  { NOTE, (gex_AM_Fn_t)note, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDLONG, 0, NULL, "note" }
};

/* Checks a team's queries. `at` returns the rank in the job of a rank in the team. */
static void translations(gex_TM_t tm, gex_Rank_t expected_size, gex_Rank_t (*at)(gex_Rank_t)) {
  gex_Rank_t rank, members = 0;
  CHECK(tm != GEX_TM_INVALID && tm != team);
  CHECK_EQ(gex_TM_QuerySize(tm), expected_size);
  CHECK(gex_TM_QueryClient(tm) == client && gex_TM_QueryEP(tm) == ep);
  CHECK_EQ(gex_TM_QueryFlags(tm), 0);
  CHECK_EQ(at(gex_TM_QueryRank(tm)), me);
  for (rank = 0; rank < expected_size; ++rank) {
    CHECK_EQ(gex_TM_TranslateRankToJobrank(tm, rank), at(rank));
    CHECK_EQ(gex_TM_TranslateJobrankToRank(tm, at(rank)), rank);
    CHECK_EQ(gex_TM_TranslateRankToEP(tm, rank, 0).gex_rank, at(rank));
    CHECK_EQ(gex_TM_TranslateRankToEP(tm, rank, 0).gex_ep_index, 0);
  }
  for (rank = 0; rank < size; ++rank) members += gex_TM_TranslateJobrankToRank(tm, rank) != GEX_RANK_INVALID;
  CHECK_EQ(members, expected_size);
  CHECK(gex_TM_QueryCData(tm) == NULL);
  gex_TM_SetCData(tm, &counted);
  CHECK(gex_TM_QueryCData(tm) == &counted && gex_TM_QueryCData(team) == NULL);
}

static gex_Rank_t backwards(gex_Rank_t rank) { return size - 1 - rank; }
static gex_Rank_t alike(gex_Rank_t rank) { return 2 * rank + me % 2; }

/* Checks every collective operation of a team. */
static void collectives(gex_TM_t tm) {
  const gex_Rank_t of = gex_TM_QuerySize(tm), mine = gex_TM_QueryRank(tm);
  uint32_t *const all = (uint32_t *)calloc(of, 4), *const back = (uint32_t *)calloc(of, 4);
  uint32_t own = 100 + mine, got = 0;
  const int sync = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC | GASNET_COLL_LOCAL;
  const int strict = GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC | GASNET_COLL_DST_IN_SEGMENT |
                     GASNET_COLL_SRC_IN_SEGMENT;
  gasnet_coll_handle_t handles[2];
  gasnet_image_t root;
  CHECK(all && back);
  for (root = 0; root < of; ++root) {
    gex_Rank_t rank;
    gasnet_coll_gather(tm, root, all, &own, 4, root % 2 ? sync : strict);
    for (rank = 0; root == mine && rank < of; ++rank) CHECK_EQ(all[rank], 100 + rank);
    for (rank = 0; rank < of; ++rank) all[rank] = mine * 1000 + rank;
    gasnet_coll_scatter(tm, &got, root, all, 4, sync);
    CHECK_EQ(got, root * 1000 + mine);
    got = mine == root ? 7 : 0;
    gasnet_coll_broadcast(tm, &got, root, &got, 4, GASNET_COLL_IN_NOSYNC | GASNET_COLL_OUT_NOSYNC);
    CHECK_EQ(got, 7);
    got = mine == root ? 8 : 0;
    gex_Event_Wait(gex_Coll_BroadcastNB(tm, root, &got, &got, 4, 0));
    CHECK_EQ(got, 8);
    gex_Event_Wait(gex_Coll_ReduceToOneNB(tm, root, &got, &own, GEX_DT_U32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
    if (mine == root) CHECK_EQ(got, 100 * of + of * (of - 1) / 2);
    gasnet_coll_exchange(tm, back, all, 4, strict);
    for (rank = 0; rank < of; ++rank) CHECK_EQ(back[rank], rank * 1000 + mine);
    gasnet_coll_gather_all(tm, back, &own, 4, sync);
    for (rank = 0; rank < of; ++rank) CHECK_EQ(back[rank], 100 + rank);
    /* The two operations are in flight at once. */
    handles[0] = gasnet_coll_gather_all_nb(tm, all, &own, 4, strict);
    handles[1] = gasnet_coll_exchange_nb(tm, back, back, 0, sync);
    gasnet_coll_wait_sync_all(handles, 2);
    for (rank = 0; rank < of; ++rank) CHECK_EQ(all[rank], 100 + rank);
    handles[0] = gasnet_coll_broadcast_nb(tm, &got, root, &own, 4, sync);
    while (gasnet_coll_try_sync(handles[0]) != GASNET_OK) gasnet_AMPoll();
    CHECK_EQ(got, 100 + root);
    handles[0] = gasnet_coll_scatter_nb(tm, &got, root, all, 4, sync);
    while (gasnet_coll_try_sync_all(handles, 1) != GASNET_OK) gasnet_AMPoll();
    CHECK_EQ(got, 100 + mine);
    handles[0] = gasnet_coll_gather_nb(tm, root, back, &own, 4, sync);
    while (gasnet_coll_try_sync_some(handles, 1) != GASNET_OK) gasnet_AMPoll();
    handles[0] = gasnet_coll_broadcast_nb(tm, &got, root, &own, 4, sync);
    gasnet_coll_wait_sync_some(handles, 1);
    CHECK(handles[0] == GASNET_COLL_INVALID_HANDLE);
    gasnet_coll_wait_sync(gasnet_coll_broadcast_nb(tm, &got, root, &own, 4, sync));
  }
  gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, &got, &own, GEX_DT_U32, 4, 1, GEX_OP_MAX, NULL, NULL, 0));
  CHECK_EQ(got, 100 + of - 1);
  gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
  gex_Coll_BarrierBlocking(tm, 0);
  free(all);
  free(back);
}

/* Sends messages to the next rank of a team, puts to it and gets from it. Calls that take a rank
 * take the rank in the team. */
static void point_to_point(gex_TM_t tm) {
  const gex_Rank_t of = gex_TM_QuerySize(tm), next = (gex_TM_QueryRank(tm) + 1) % of;
  const gex_Rank_t before = (gex_TM_QueryRank(tm) + of - 1) % of;
  const gex_Rank_t to = gex_TM_TranslateRankToJobrank(tm, next);
  char *const there = base[to];
  char *const here = base[me];
  const char tag = (char)(1 + gex_TM_QueryRank(tm)), expected = (char)(1 + before);
  char got = 0;
  void *owner = NULL;
  gex_AM_SrcDesc_t prepared;
  counted = 0;
  noted = 0;
  memset(here, 0, 64);
  gex_Coll_BarrierBlocking(tm, 0);
  CHECK_EQ(gex_AM_RequestShort0(tm, next, COUNT, 0), 0);
  GASNET_BLOCKUNTIL(counted == 1);
  CHECK_EQ(gex_AM_RequestMedium0(tm, next, NOTE, &tag, 1, GEX_EVENT_NOW, 0), 0);
  GASNET_BLOCKUNTIL(noted == expected);
  gex_Coll_BarrierBlocking(tm, 0);
  noted = 0;
  gex_Coll_BarrierBlocking(tm, 0);
  CHECK_EQ(gex_AM_RequestLong0(tm, next, NOTE, &tag, 1, there + 8, GEX_EVENT_NOW, 0), 0);
  GASNET_BLOCKUNTIL(noted == expected);
  CHECK_EQ(here[8], expected);
  gex_Coll_BarrierBlocking(tm, 0);
  noted = 0;
  gex_Coll_BarrierBlocking(tm, 0);
  prepared = gex_AM_PrepareRequestMedium(tm, next, NULL, 1, 1, NULL, 0, 0);
  *(char *)gex_AM_SrcDescAddr(prepared) = tag;
  gex_AM_CommitRequestMedium0(prepared, NOTE, 1);
  GASNET_BLOCKUNTIL(noted == expected);
  gex_RMA_PutBlocking(tm, next, there + 16, &tag, 1, 0);
  gex_RMA_PutBlockingVal(tm, next, there + 17, (gex_RMA_Value_t)tag, 1, 0);
  gex_Event_Wait(gex_RMA_PutNB(tm, next, there + 18, &tag, 1, GEX_EVENT_NOW, 0));
  gex_Event_Wait(gex_RMA_PutNBVal(tm, next, there + 19, (gex_RMA_Value_t)tag, 1, 0));
  gex_RMA_PutNBI(tm, next, there + 20, &tag, 1, GEX_EVENT_NOW, 0);
  gex_RMA_PutNBIVal(tm, next, there + 21, (gex_RMA_Value_t)tag, 1, 0);
  gex_NBI_Wait(GEX_EC_PUT, 0);
  gex_Coll_BarrierBlocking(tm, 0);
  {
    int i;
    for (i = 16; i < 22; ++i) CHECK_EQ(here[i], expected);
  }
  gex_RMA_GetBlocking(tm, &got, next, there + 16, 1, 0);
  CHECK_EQ(got, tag);
  CHECK_EQ(gex_RMA_GetBlockingVal(tm, next, there + 17, 1, 0), (uint64_t)tag);
  got = 0;
  gex_Event_Wait(gex_RMA_GetNB(tm, &got, next, there + 18, 1, 0));
  CHECK_EQ(got, tag);
  gex_RMA_GetNBI(tm, &got, next, there + 20, 1, 0);
  gex_NBI_Wait(GEX_EC_GET, 0);
  CHECK_EQ(got, tag);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, next, &owner, NULL, NULL, 0));
  CHECK(owner == there);
  owner = NULL;
  CHECK_EQ(gex_Segment_QueryBound(tm, next, &owner, NULL, NULL), 0);
  CHECK(owner == there);
  CHECK_EQ(gex_AM_MaxRequestMedium(tm, next, GEX_EVENT_NOW, 0, 0), gex_AM_MaxRequestMedium(team, to, GEX_EVENT_NOW, 0, 0));
  CHECK_EQ(gex_AM_MaxReplyLong(tm, next, GEX_EVENT_NOW, 0, 0), gex_AM_MaxReplyLong(team, to, GEX_EVENT_NOW, 0, 0));
  CHECK(gex_AM_MaxReplyLong(tm, GEX_RANK_INVALID, GEX_EVENT_NOW, 0, 0) > 0);
  gex_Coll_BarrierBlocking(tm, 0);
}

static void split(void) {
  gex_TM_t half = GEX_TM_INVALID, turned = GEX_TM_INVALID;
  gex_Memvec_t scratch;
  char *const given = base[me] + GASNET_PAGESIZE;
  const size_t wished = gex_TM_Split(&half, team, (int)(me % 2), 0, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED);
  CHECK(wished > 0);
  CHECK_EQ(gex_TM_Split(NULL, team, 0, 0, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_MIN), 0);
  CHECK(half == GEX_TM_INVALID);
  gex_TM_Split(&half, team, (int)(me % 2), 0, given, wished, 0);
  translations(half, (size + 1 - me % 2) / 2, alike);
  collectives(half);
  point_to_point(half);
  /* The keys put the team's ranks in reverse order. */
  gex_TM_Split(&turned, team, 5, -(int)me, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
  translations(turned, size, backwards);
  collectives(turned);
  point_to_point(turned);
  scratch.gex_addr = NULL;
  CHECK_EQ(gex_TM_Destroy(turned, &scratch, 0), 0);
  CHECK(scratch.gex_addr == NULL);
  CHECK(gex_TM_Destroy(half, &scratch, GEX_FLAG_GLOBALLY_QUIESCED) != 0);
  CHECK(scratch.gex_addr == given);
  CHECK_EQ(scratch.gex_len, wished);
}

/* Makes teams by lists of members. The teams contain only some of the ranks. */
static void created(void) {
  gex_TM_t tm = GEX_TM_INVALID, of_it = GEX_TM_INVALID;
  gex_EP_Location_t members[MOST_RANKS];
  gex_Addr_t scratch[MOST_RANKS];
  const gex_Rank_t some = size > 2 ? size - 1 : size;
  const int in = me < some;
  gex_Rank_t rank;
  for (rank = 0; rank < some; ++rank) {
    members[rank].gex_rank = some - 1 - rank;
    members[rank].gex_ep_index = 0;
    scratch[rank] = base[some - 1 - rank] + GASNET_PAGESIZE;
  }
  CHECK_EQ(gex_TM_Create(NULL, (size_t)in, team, members, in ? some : 0, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED) > 0,
           (uint64_t)in);
  gex_TM_Create(&tm, (size_t)in, team, members, in ? some : 0, scratch, 64, GEX_FLAG_TM_GLOBAL_SCRATCH);
  CHECK_EQ(tm != GEX_TM_INVALID, (uint64_t)in);
  if (!in) return;
  for (rank = 0; rank < some; ++rank) CHECK_EQ(gex_TM_TranslateRankToJobrank(tm, rank), some - 1 - rank);
  collectives(tm);
  /* This team has the ranks of the first one. They are listed by their ranks in the job. */
  scratch[0] = base[me] + GASNET_PAGESIZE;
  gex_TM_Create(&of_it, 1, tm, members, some, scratch, 64, GEX_FLAG_TM_LOCAL_SCRATCH | GEX_FLAG_RANK_IS_JOBRANK);
  point_to_point(of_it);
  gex_TM_Destroy(of_it, NULL, 0);
  gex_TM_Create(&of_it, 1, tm, members, some, scratch, 64, GEX_FLAG_TM_SYMMETRIC_SCRATCH);
  /* The ranks of the result are in the job's order, although its parent has them in reverse order.
   * */
  for (rank = 0; rank < some; ++rank) CHECK_EQ(gex_TM_TranslateRankToJobrank(of_it, rank), rank);
  gex_TM_Destroy(of_it, NULL, 0);
  gex_TM_Destroy(tm, NULL, 0);
}

/* Makes many teams at a time, which must be independent of each other. */
static void many(void) {
  enum { MANY = 200 };
  static gex_TM_t teams[MANY];
  static gex_Event_t events[MANY];
  static uint32_t values[MANY];
  int i;
  for (i = 0; i < MANY; ++i) gex_TM_Split(&teams[i], team, (int)(me % (1 + (gex_Rank_t)i % 3)), (int)me * i, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
  for (i = 0; i < MANY; ++i) {
    values[i] = 1;
    events[i] = gex_Coll_ReduceToAllNB(teams[i], &values[i], &values[i], GEX_DT_U32, 4, 1, GEX_OP_ADD, NULL, NULL, 0);
  }
  gex_Event_WaitAll(events, MANY, 0);
  for (i = 0; i < MANY; ++i) {
    CHECK_EQ(values[i], gex_TM_QuerySize(teams[i]));
    gex_TM_Destroy(teams[i], NULL, 0);
  }
}

/* A pair must name the same endpoints as the team of the job. */
static void pairs(void) {
  const gex_TM_t pair = gex_TM_Pair(ep, 0);
  const gex_Rank_t next = neighbour(1);
  const char tag = (char)(me + 1);
  char got = 0;
  void *owner = NULL;
  CHECK(pair == gex_TM_Pair(ep, 0) && pair != team && pair != GEX_TM_INVALID);
  gex_RMA_PutBlocking(pair, next, base[next] + 32, &tag, 1, 0);
  gex_RMA_GetBlocking(pair, &got, next, base[next] + 32, 1, 0);
  CHECK_EQ(got, tag);
  counted = 0;
  barrier();
  CHECK_EQ(gex_AM_RequestShort0(pair, next, COUNT, 0), 0);
  GASNET_BLOCKUNTIL(counted == 1);
  CHECK_EQ(gex_AM_MaxRequestLong(pair, next, GEX_EVENT_NOW, 0, 0), gex_AM_MaxRequestLong(team, next, GEX_EVENT_NOW, 0, 0));
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, next, &owner, NULL, NULL, 0));
  CHECK(owner == base[next]);
}

/* GASNet-1's barriers with a team, which must be the team of all ranks. */
static void barriers(void) {
  int id = 0;
  gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 5, 0);
  CHECK_EQ(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, 5, 0), GASNET_OK);
  CHECK_EQ(gasnet_coll_barrier_result(GASNET_TEAM_ALL, &id), 0);
  CHECK_EQ(id, 5);
  gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 6, 0);
  while (gasnet_coll_barrier_try(GASNET_TEAM_ALL, 6, 0) == GASNET_ERR_NOT_READY) {}
  CHECK_EQ(gasnet_coll_barrier(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_UNNAMED), GASNET_OK);
  gasnet_coll_dumpTuningState(NULL, GASNET_TEAM_ALL);
  gasnet_coll_dumpProfile(NULL, GASNET_TEAM_ALL);
}

int main(int argc, char **argv) {
  const gasnet_team_handle_t *all = &team;
  start(&argc, &argv, handlers, 2, 2 * (uintptr_t)GASNET_PAGESIZE);
  CHECK(*all == GASNET_TEAM_ALL);
  collectives(team);
  split();
  barrier();
  created();
  barrier();
  many();
  pairs();
  barriers();
  finish();
  return 0;
}
