/* Segment everything: puts, gets, longs and atomics to a peer's memory, which isn't attached. With
 * an argument, rank 0 uses an address that the last rank doesn't have in a put, get, long or
 * atomic, which must end the job. */
#define GASNET_SEGMENT_EVERYTHING 1
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <stdlib.h>

#include "check.h"
#include "refuse.h"

enum { TELL = GEX_AM_INDEX_BASE, FILL, FILLED, COME, MOST_RANKS = 64, SMALL = 100, LARGE = 300000 };

static gex_TM_t team;
static gex_Rank_t me, size;
/* The memory for puts, gets and messages is static and not a part of any segment. */
static unsigned char area[LARGE];
static unsigned char copy[LARGE], back[LARGE];
/* The address of each rank's area. */
static unsigned char *volatile areas[MOST_RANKS];
static volatile unsigned int told, filled, answered, come;

static void *address(gex_AM_Arg_t high, gex_AM_Arg_t low) {
  return (void *)(((uintptr_t)(uint32_t)high << 32) | (uintptr_t)(uint32_t)low);
}

static gex_Rank_t source(gex_Token_t token) {
  gex_Token_Info_t info;
  CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK) & GEX_TI_SRCRANK);
  return info.gex_srcrank;
}

static void tell(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
  areas[source(token)] = (unsigned char *)address(high, low);
  ++told;
}

/* Handles a long by returning the same bytes as a long to the sender's memory. */
static void fill_handler(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t high, gex_AM_Arg_t low) {
  CHECK(at == area);
  CHECK(gex_AM_ReplyLong1(token, FILLED, at, bytes, address(high, low), GEX_EVENT_NOW, 0, (gex_AM_Arg_t)bytes) == 0);
  ++filled;
}

static void filled_handler(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t length) {
  (void)token;
  CHECK(at == back);
  CHECK_EQ(bytes, (size_t)length);
  ++answered;
}

static void come_handler(gex_Token_t token, void *at, size_t bytes) {
  (void)token;
  CHECK(at == area);
  CHECK_EQ(bytes, LARGE);
  ++come;
}

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

/* Exchanges that many bytes with the neighbours by puts, gets and longs. They come from the left
 * neighbour and go to the right one. */
static void exchange(size_t bytes, unsigned int message) {
  const gex_Rank_t right = (me + 1) % size, left = (me + size - 1) % size;
  unsigned char *const there = areas[right];
  const uintptr_t home = (uintptr_t)back;
  const unsigned int before = answered;
  gex_Event_t done = GEX_EVENT_INVALID;

  fill(copy, bytes, message + me);
  CHECK_EQ(gex_RMA_PutBlocking(team, right, there, copy, bytes, 0), 0);
  barrier();
  check_filled(area, bytes, message + left);
  memset(back, 0, bytes);
  CHECK_EQ(gex_RMA_GetBlocking(team, back, right, there, bytes, 0), 0);
  check_filled(back, bytes, message + me);
  barrier();

  fill(copy, bytes, message + 50 + me);
  gex_Event_Wait(gex_RMA_PutNB(team, right, there, copy, bytes, &done, 0));
  CHECK_EQ(gex_RMA_PutNBI(team, right, there, copy, bytes, GEX_EVENT_DEFER, 0), 0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
  memset(back, 0, bytes);
  gex_Event_Wait(gex_RMA_GetNB(team, back, right, there, bytes, 0));
  check_filled(back, bytes, message + 50 + me);
  barrier();
  check_filled(area, bytes, message + 50 + left);
  barrier();

  /* A reply can't wait, so its length is limited. */
  if (bytes > gex_AM_LUBReplyLong()) bytes = gex_AM_LUBReplyLong();
  fill(copy, bytes, message + 100 + me);
  memset(back, 0, bytes);
  CHECK_EQ(gex_AM_RequestLong2(team, right, FILL, copy, bytes, there, GEX_EVENT_NOW, 0,
                               (gex_AM_Arg_t)(uint32_t)(home >> 32), (gex_AM_Arg_t)(uint32_t)home), 0);
  GASNET_BLOCKUNTIL(answered != before);
  check_filled(back, bytes, message + 100 + me);
  barrier();
  check_filled(area, bytes, message + 100 + left);
  barrier();
}

/* Sends the longest requests, which get no replies. */
static void long_one_way(void) {
  const gex_Rank_t right = (me + 1) % size, left = (me + size - 1) % size;
  fill(copy, LARGE, 7 + me);
  CHECK_EQ(gex_AM_RequestLong0(team, right, COME, copy, LARGE, areas[right], GEX_EVENT_NOW, 0), 0);
  GASNET_BLOCKUNTIL(come == 1);
  check_filled(area, LARGE, 7 + left);
  barrier();
}

enum { ROWS = 3000, EACH = 24 };

/* Transfers every second element of an area, to and from contiguous elements. */
static void arrays(void) {
  static const ptrdiff_t apart[] = {2 * EACH}, close[] = {EACH};
  static const size_t rows[] = {ROWS};
  const gex_Rank_t right = (me + 1) % size, left = (me + size - 1) % size;
  void *places[] = {areas[right] + EACH, areas[right] + 5 * EACH, areas[right] + 3 * EACH}, *const to[] = {back};
  size_t i;
  fill(copy, ROWS * EACH, 9 + me);
  memset(area, 0x33, LARGE);
  barrier();
  CHECK_EQ(gex_VIS_StridedPutBlocking(team, right, areas[right] + EACH, apart, copy, close, EACH, rows, 1, 0), 0);
  barrier();
  fill(copy, ROWS * EACH, 9 + left);
  for (i = 0; i < LARGE; ++i) {
    const size_t row = i / (2 * EACH);
    const int written = i % (2 * EACH) >= EACH && row < ROWS;
    CHECK_EQ(area[i], written ? copy[row * EACH + i % EACH] : 0x33);
  }
  memset(back, 0, ROWS * EACH);
  gex_Event_Wait(gex_VIS_StridedGetNB(team, back, close, right, areas[right] + EACH, apart, EACH, rows, 1, 0));
  check_filled(back, ROWS * EACH, 9 + me);
  memset(back, 0, 3 * EACH);
  CHECK_EQ(gex_VIS_IndexedGetBlocking(team, 1, to, 3 * EACH, right, 3, places, EACH, 0), 0);
  fill(copy, 3 * EACH, 9 + me);
  CHECK(!memcmp(back, copy, EACH) && !memcmp(back + EACH, copy + 2 * EACH, EACH));
  CHECK(!memcmp(back + 2 * EACH, copy + EACH, EACH));
  barrier();
}

/* Runs atomics of all ranks on the same numbers outside any segment, atomics on a rank's own
 * number, and atomics on the last number of a page. */
static void atomics(void) {
  static int64_t sum;
  static double reals[2];
  static uint32_t words[3];
  uint32_t old = 1;
  double before = 1;
  gex_AD_t sums, doubles, halves;
  gex_Rank_t rank;
  int64_t total = 0;
  /* All ranks run the same program, so these distances to the area are the same on every rank. */
  const ptrdiff_t to_sum = (unsigned char *)&sum - area, to_reals = (unsigned char *)reals - area;
  const ptrdiff_t to_words = (unsigned char *)words - area;
  gex_AD_Create(&sums, team, GEX_DT_I64, GEX_OP_ADD | GEX_OP_FADD | GEX_OP_GET, 0);
  gex_AD_Create(&doubles, team, GEX_DT_DBL, GEX_OP_FMAX | GEX_OP_FCAS, 0);
  gex_AD_Create(&halves, team, GEX_DT_U32, GEX_OP_FXOR | GEX_OP_SET, 0);
  for (rank = 0; rank < size; ++rank) {
    unsigned int round;
    for (round = 0; round < 50; ++round) {
      gex_Event_Wait(gex_AD_OpNB_I64(sums, NULL, rank, areas[rank] + to_sum, GEX_OP_ADD, (int64_t)me + 1, 0, 0));
      CHECK_EQ(gex_AD_OpNBI_I64(sums, NULL, rank, areas[rank] + to_sum, GEX_OP_ADD, 1000, 0, 0), 0);
    }
    gex_NBI_Wait(GEX_EC_RMW, 0);
  }
  barrier();
  CHECK_EQ(sum, 50 * ((int64_t)size * (size + 1) / 2 + 1000 * (int64_t)size));
  gex_Event_Wait(gex_AD_OpNB_I64(sums, &total, (me + 1) % size, areas[(me + 1) % size] + to_sum, GEX_OP_GET, 0, 0, 0));
  CHECK_EQ(total, sum);
  rank = (me + 1) % size;
  gex_Event_Wait(gex_AD_OpNB_DBL(doubles, &before, rank, areas[rank] + to_reals + 8, GEX_OP_FMAX, 2.5, 0, 0));
  CHECK(before == 0);
  gex_Event_Wait(gex_AD_OpNB_DBL(doubles, &before, rank, areas[rank] + to_reals + 8, GEX_OP_FCAS, 2.5, -1, 0));
  CHECK(before == 2.5);
  gex_Event_Wait(gex_AD_OpNB_U32(halves, &old, rank, areas[rank] + to_words + 4, GEX_OP_FXOR, 0xf0f0f0f0U, 0, 0));
  CHECK_EQ(old, 0);
  barrier();
  CHECK(reals[0] == 0 && reals[1] == -1);
  CHECK(words[0] == 0 && words[1] == 0xf0f0f0f0U && words[2] == 0);
  gex_AD_Destroy(sums);
  gex_AD_Destroy(doubles);
  gex_AD_Destroy(halves);
}

static void wild(const char *way) {
  static const ptrdiff_t strides[] = {8};
  static const size_t two[] = {2};
  void *const nowhere = (void *)(uintptr_t)16;
  const gex_Rank_t last = size - 1;
  gex_AD_t ad;
  gex_AD_Create(&ad, team, GEX_DT_U64, GEX_OP_INC, 0);
  if (me != 0) return;
  if (strcmp(way, "atomic") == 0) gex_Event_Wait(gex_AD_OpNB_U64(ad, NULL, last, nowhere, GEX_OP_INC, 0, 0, 0));
  if (strcmp(way, "put") == 0) (void)gex_RMA_PutBlocking(team, last, nowhere, copy, 8, 0);
  if (strcmp(way, "get") == 0) (void)gex_RMA_GetBlocking(team, copy, last, nowhere, LARGE, 0);
  if (strcmp(way, "long") == 0)
    (void)gex_AM_RequestLong0(team, last, COME, copy, LARGE, nowhere, GEX_EVENT_NOW, 0);
  if (strcmp(way, "array-put") == 0)
    (void)gex_VIS_StridedPutBlocking(team, last, nowhere, strides, copy, strides, 4, two, 1, 0);
  if (strcmp(way, "array-get") == 0)
    (void)gex_VIS_StridedGetBlocking(team, copy, strides, last, nowhere, strides, 4, two, 1, 0);
  if (strcmp(way, "short-long") == 0)
    (void)gex_AM_RequestLong0(team, last, COME, copy, 8, nowhere, GEX_EVENT_NOW, 0);
}

static void values(void) {
  const gex_Rank_t right = (me + 1) % size, left = (me + size - 1) % size;
  uint64_t got = 0;
  CHECK_EQ(gex_RMA_PutBlockingVal(team, right, areas[right], 0x1234567890ULL + me, 8, 0), 0);
  barrier();
  memcpy(&got, area, sizeof got);
  CHECK_EQ(got, 0x1234567890ULL + left);
  CHECK_EQ(gex_RMA_GetBlockingVal(team, right, areas[right], 8, 0), 0x1234567890ULL + me);
  barrier();
}

static void no_segments(gex_EP_t ep) {
  gex_Rank_t rank;
  CHECK(gex_EP_QuerySegment(ep) == GEX_SEGMENT_INVALID);
  for (rank = 0; rank < size; ++rank) {
    void *owner = area, *local = area;
    uintptr_t bytes = 77;
    CHECK(gex_Segment_QueryBound(team, rank, &owner, &local, &bytes) != 0);
    CHECK(owner == area && local == area);
    CHECK_EQ(bytes, 77);
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, &local, &bytes, 0));
    CHECK_EQ(bytes, 0);
  }
}

static void never(void *address, uintptr_t bytes) {
  (void)address;
  CHECK_EQ(bytes, 0);
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_AM_Entry_t handlers[] = {
    {TELL, (gex_AM_Fn_t)tell, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 2, NULL, "tell"},
    {FILL, (gex_AM_Fn_t)fill_handler, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 2, NULL, "fill"},
    {FILLED, (gex_AM_Fn_t)filled_handler, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_LONG, 1, NULL, "filled"},
    {COME, (gex_AM_Fn_t)come_handler, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 0, NULL, "come"},
  };
  const uintptr_t here = (uintptr_t)area;
  gex_Rank_t rank, mine = 0, count = 0;
  gex_RankInfo_t *neighbours = NULL;
  gex_Segment_t segment;

  /* The library must not announce a segment. */
  gasnet_client_attach_hook = &never;
  /* The refusal applies to this thread and to threads started from here on. The library's threads
   * must be among those. */
  if (getenv("TEST_COPIES")) refuse_copies(strcmp(getenv("TEST_COPIES"), "none") == 0);
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "TEST", &argc, &argv, 0), GASNET_OK);
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  check_rank = (int)me;
  CHECK(size <= MOST_RANKS);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, handlers, sizeof handlers / sizeof handlers[0]), GASNET_OK);
  barrier();

  /* All of a rank's memory is accessible, but queries must find no segment before or after attach.
   * */
  CHECK_EQ(gasnet_getMaxLocalSegmentSize(), UINTPTR_MAX);
  no_segments(ep);
  segment = (gex_Segment_t)(void *)area;
  CHECK_EQ(gex_Segment_Attach(&segment, team, GASNET_PAGESIZE), GASNET_OK);
  CHECK(segment == GEX_SEGMENT_INVALID);
  no_segments(ep);
  gex_System_QueryNbrhdInfo(&neighbours, &count, &mine);
  CHECK_EQ(count, 1);
  CHECK_EQ(neighbours[mine].gex_jobrank, me);

  for (rank = 0; rank < size; ++rank)
    CHECK_EQ(gex_AM_RequestShort2(team, rank, TELL, 0, (gex_AM_Arg_t)(uint32_t)(here >> 32),
                                  (gex_AM_Arg_t)(uint32_t)here), 0);
  GASNET_BLOCKUNTIL(told == size);
  barrier();

  exchange(SMALL, 1);
  exchange(LARGE, 2);
  long_one_way();
  values();
  arrays();
  atomics();
  if (argc > 1) {
    wild(argv[1]);
    /* The rank that detects the error ends the job. It must poll to detect it. */
    GASNET_BLOCKUNTIL(0);
  }
  barrier();
  CHECK_EQ(filled, 2);
  barrier();
  gasnet_exit(0);
}
