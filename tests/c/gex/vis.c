/* Puts and gets of vectors, address lists and arrays, in each form, to a neighbour and to the rank
 * itself. Handlers run when some puts complete. */
#include <gasnet_vis.h>

#include "start.h"

#include "ranges.h"

#define ROUNDS 16
#define COMPLETIONS 16U
#define COMPLETED GEX_AM_INDEX_BASE

enum { BLOCKING, EVENT, IMPLICIT, REGION, FORMS };

static side_t here, there;
static char *local, *found, *expected;
static volatile unsigned int completed;

/* The payload for a put's completion handler: the place of the last byte written, and that byte. */
typedef struct {
  uint32_t place;
  unsigned char byte;
  unsigned char rest[GEX_VIS_MAX_PEERCOMPLETION - 5];
} completion_t;

static void on_completed(gex_Token_t token, void *payload, size_t bytes) {
  gex_Token_Info_t info;
  completion_t told;
  CHECK(gex_Token_Info(token, &info, GEX_TI_ALL) & GEX_TI_SRCRANK);
  CHECK_EQ(info.gex_srcrank, neighbour(size - 1));
  CHECK_EQ(info.gex_is_req, 0);
  CHECK_EQ(info.gex_is_long, 0);
  CHECK_EQ(info.gex_entry->gex_index, COMPLETED);
  if (bytes) {
    CHECK_EQ(bytes, sizeof(told));
    memcpy(&told, payload, sizeof(told));
    CHECK_EQ((unsigned char)base[me][told.place], told.byte);
    CHECK_EQ(told.rest[sizeof(told.rest) - 1], 7);
  }
  completed = completed + 1;
}

/* Starts one put. Returns its event, or the return value of a form that has no event. */
static gex_Event_t start_put(int kind, int form, gex_Rank_t peer, gex_Flags_t flags) {
  int refused = 0;
  gex_Event_t event = GEX_EVENT_INVALID;
#define VECTORS team, peer, there.count, there.list, here.count, here.list, flags
#define LISTS team, peer, there.count, there.addresses, there.bytes, here.count, here.addresses, here.bytes, flags
#define ARRAYS team, peer, there.first, there.strides, here.first, here.strides, here.bytes, here.counts, here.count, flags
  switch (kind * 3 + (form == BLOCKING ? 0 : form == EVENT ? 1 : 2)) {
    case 0: refused = gex_VIS_VectorPutBlocking(VECTORS); break;
    case 1: event = gex_VIS_VectorPutNB(VECTORS); break;
    case 2: refused = gex_VIS_VectorPutNBI(VECTORS); break;
    case 3: refused = gex_VIS_IndexedPutBlocking(LISTS); break;
    case 4: event = gex_VIS_IndexedPutNB(LISTS); break;
    case 5: refused = gex_VIS_IndexedPutNBI(LISTS); break;
    case 6: refused = gex_VIS_StridedPutBlocking(ARRAYS); break;
    case 7: event = gex_VIS_StridedPutNB(ARRAYS); break;
    default: refused = gex_VIS_StridedPutNBI(ARRAYS); break;
  }
#undef VECTORS
#undef LISTS
#undef ARRAYS
  return refused ? GEX_EVENT_NO_OP : event;
}

static gex_Event_t start_get(int kind, int form, gex_Rank_t peer, gex_Flags_t flags) {
  int refused = 0;
  gex_Event_t event = GEX_EVENT_INVALID;
#define VECTORS team, here.count, here.list, peer, there.count, there.list, flags
#define LISTS team, here.count, here.addresses, here.bytes, peer, there.count, there.addresses, there.bytes, flags
#define ARRAYS team, here.first, here.strides, peer, there.first, there.strides, here.bytes, here.counts, here.count, flags
  switch (kind * 3 + (form == BLOCKING ? 0 : form == EVENT ? 1 : 2)) {
    case 0: refused = gex_VIS_VectorGetBlocking(VECTORS); break;
    case 1: event = gex_VIS_VectorGetNB(VECTORS); break;
    case 2: refused = gex_VIS_VectorGetNBI(VECTORS); break;
    case 3: refused = gex_VIS_IndexedGetBlocking(LISTS); break;
    case 4: event = gex_VIS_IndexedGetNB(LISTS); break;
    case 5: refused = gex_VIS_IndexedGetNBI(LISTS); break;
    case 6: refused = gex_VIS_StridedGetBlocking(ARRAYS); break;
    case 7: event = gex_VIS_StridedGetNB(ARRAYS); break;
    default: refused = gex_VIS_StridedGetNBI(ARRAYS); break;
  }
  return refused ? GEX_EVENT_NO_OP : event;
}

/* Starts a transfer and completes it in the way of its form. Repeats an immediate call until it
 * starts the transfer. */
static void transfer(int put, int kind, int form, gex_Rank_t peer) {
  gex_Flags_t flags = draw(2) ? GEX_FLAG_IMMEDIATE : 0;
  const int leaf = put && draw(2);
  gex_Event_t event;
  if (form == BLOCKING) flags = 0;
  if (leaf) flags |= GEX_FLAG_ENABLE_LEAF_LC;
  if (form == REGION) gex_NBI_BeginAccessRegion(0);
  while ((event = put ? start_put(kind, form, peer, flags) : start_get(kind, form, peer, flags)) == GEX_EVENT_NO_OP) {
    CHECK(flags & GEX_FLAG_IMMEDIATE);
    gasnet_AMPoll();
  }
  if (form == REGION) event = gex_NBI_EndAccessRegion(0);
  if (leaf && form != BLOCKING) {
    if (form == IMPLICIT) gex_NBI_Wait(GEX_EC_LC, 0);
    else gex_Event_Wait(gex_Event_QueryLeaf(event, GEX_EC_LC));
    memset(local, 0xAA, AREA);
  }
  if (form == IMPLICIT) gex_NBI_Wait(put ? GEX_EC_PUT : GEX_EC_GET, 0);
  else gex_Event_Wait(event);
}

static void put_and_get(int kind, int form, gex_Rank_t peer, char *area) {
  static unsigned int message;
  size_t i;
  draw_sides(kind, &there, area, &here, local);
  memset(found, 0x11, AREA);
  memset(expected, 0x11, AREA);
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, area, found, AREA, 0), 0);
  fill(local, AREA, ++message);
  for (i = 0; i < there.all; ++i) expected[there.places[i]] = local[here.places[i]];
  transfer(1, kind, form, peer);
  CHECK_EQ(gex_RMA_GetBlocking(team, found, peer, area, AREA, 0), 0);
  CHECK(!memcmp(found, expected, AREA));

  draw_sides(kind, &there, area, &here, local);
  memset(local, 0x22, AREA);
  memset(expected, 0x22, AREA);
  for (i = 0; i < there.all; ++i) expected[here.places[i]] = found[there.places[i]];
  transfer(0, kind, form, peer);
  CHECK(!memcmp(local, expected, AREA));
}

/* Puts with a completion handler at the neighbour. Each put has a place of its own. When its
 * handler runs, the last byte must be there. */
static unsigned int completions(gex_Rank_t peer) {
  static const ptrdiff_t apart[] = {64, 1024}, close[] = {8, 24};
  static const size_t counts[] = {3, 4};
  unsigned int i;
  for (i = 0; i < COMPLETIONS; ++i) {
    const int form = (int)(i % FORMS), empty = i % 5 == 0;
    completion_t told;
    size_t j;
    CHECK_EQ(sizeof(told), GEX_VIS_MAX_PEERCOMPLETION);
    here.count = empty ? 0 : 2;
    here.bytes = empty ? 0 : 8;
    for (j = 0; j < 2; ++j) {
      there.strides[j] = apart[j];
      here.strides[j] = close[j];
      here.counts[j] = counts[j];
    }
    there.first = base[peer] + AREA + i * 4096;
    here.first = local;
    fill(local, 96, 200 + i);
    memset(&told, 7, sizeof(told));
    told.place = (uint32_t)(AREA + i * 4096 + 2 * 64 + 3 * 1024 + 7);
    told.byte = (unsigned char)local[95];
    /* A new setting replaces the previous one. */
    gex_VIS_SetPeerCompletionHandler(COMPLETED, local, 1, 0);
    if (i % 2) gex_VIS_SetPeerCompletionHandler(0, NULL, 0, 0);
    gex_VIS_SetPeerCompletionHandler(COMPLETED, empty ? NULL : &told, empty ? 0 : sizeof(told), 0);
    transfer(1, STRIDED, form, peer);
    /* The setting applies to only one put. */
    there.first = base[peer];
    transfer(1, STRIDED, form, peer);
  }
  return i;
}

/* Transfers without bytes. Only their rank and their lists are checked. */
static void nothing(gex_Rank_t peer) {
  void *const wild = (void *)(uintptr_t)0xFFFFFFFFFFFFFFF0U;
  gex_Memvec_t empty[2];
  static const size_t counts[] = {3, 0};
  static const ptrdiff_t strides[] = {8, 64};
  empty[0].gex_addr = NULL;
  empty[1].gex_addr = wild;
  empty[0].gex_len = empty[1].gex_len = 0;
  CHECK_EQ(gex_VIS_VectorPutBlocking(team, peer, 0, NULL, 0, NULL, 0), 0);
  CHECK_EQ(gex_VIS_VectorPutBlocking(team, peer, 2, empty, 0, NULL, 0), 0);
  CHECK_EQ(gex_VIS_VectorGetBlocking(team, 0, NULL, peer, 2, empty, 0), 0);
  CHECK_EQ(gex_VIS_IndexedPutBlocking(team, peer, 0, NULL, 8, 0, NULL, 4, 0), 0);
  CHECK_EQ(gex_VIS_IndexedGetBlocking(team, 1, &wild, 0, peer, 0, NULL, 9, 0), 0);
  CHECK_EQ(gex_VIS_StridedPutBlocking(team, peer, wild, strides, NULL, strides, 4, counts, 2, 0), 0);
  CHECK_EQ(gex_VIS_StridedGetBlocking(team, NULL, NULL, peer, wild, NULL, 0, NULL, 0, 0), 0);
  gex_Event_Wait(gex_VIS_StridedGetNB(team, wild, strides, peer, NULL, strides, 4, counts, 2, 0));
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {
    {COMPLETED, (gex_AM_Fn_t)on_completed, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0, NULL, "completed"}};
  unsigned int expects;
  int round, kind, form;
  start(&argc, &argv, handlers, 1, 4 * AREA);
  local = (char *)malloc(AREA);
  found = (char *)malloc(AREA);
  expected = (char *)malloc(AREA);
  CHECK(local && found && expected);
  for (round = 0; round < ROUNDS; ++round)
    for (kind = 0; kind < KINDS; ++kind)
      for (form = 0; form < FORMS; ++form) {
        put_and_get(kind, form, neighbour(1), base[neighbour(1)]);
        if (round % 4 == 0) put_and_get(kind, form, me, base[me] + 2 * AREA);
      }
  nothing(neighbour(1));
  nothing(me);
  expects = completions(neighbour(1));
  /* Waits for the completions of the other neighbour's puts. Their number is the same as that of
   * this rank's puts. */
  while (completed < expects) gasnet_AMPoll();
  barrier();
  CHECK_EQ(completed, expects);
  free(local);
  free(found);
  free(expected);
  finish();
  return 0;
}
