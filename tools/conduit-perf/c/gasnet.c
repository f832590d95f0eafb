/* Measures the cost of GASNet's calls, for any library with the GASNet-EX interface. The job
 * has two ranks, each on its own core, or more, in which case only collective operations are
 * measured.
 *
 * Prints a line "<figure> <bytes> <nanoseconds>" for each figure, with the median of some
 * repetitions. With `gasnet SECONDS`, a repetition takes about that many seconds. */
#define _GNU_SOURCE /* for the affinity of threads */
#include <gasnetex.h>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PING_SHORT = GEX_AM_INDEX_BASE, PONG_SHORT, PING_MEDIUM, PONG_MEDIUM, PING_LONG, PONG_LONG, COUNT_SHORT,
       COUNT_MEDIUM, COUNT_LONG, READ_MEDIUM, TOLD };
enum { REPETITIONS = 9, SEGMENT = 1 << 22, RUNS = 64 };

static gex_TM_t team;
static gex_Rank_t me, peer, ranks;
static char *here, *there; /* this rank's segment, and the peer's, with its address at the peer */
static char *mapped;       /* this rank's mapping of the peer's segment, or NULL if there is none */
static char *buffer;
static volatile unsigned pongs, counted, told;
static volatile unsigned long read_sum;
static size_t bytes;
static gex_AD_t counts, sums;

static void ping_short(gex_Token_t token) { gex_AM_ReplyShort0(token, PONG_SHORT, 0); }
static void pong_short(gex_Token_t token) {
  (void)token;
  pongs++;
}
static void ping_medium(gex_Token_t token, void *data, size_t length) {
  gex_AM_ReplyMedium0(token, PONG_MEDIUM, data, length, GEX_EVENT_NOW, 0);
}
static void pong_medium(gex_Token_t token, void *data, size_t length) {
  (void)token;
  (void)data;
  (void)length;
  pongs++;
}
static void ping_long(gex_Token_t token, void *data, size_t length) {
  gex_AM_ReplyLong0(token, PONG_LONG, data, length, there, GEX_EVENT_NOW, 0);
}
static void count_short(gex_Token_t token) {
  (void)token;
  counted++;
}
static void count_payload(gex_Token_t token, void *data, size_t length) {
  (void)token;
  (void)data;
  (void)length;
  counted++;
}
/* Reads the payload, which is the work of handlers that use it. */
static void read_payload(gex_Token_t token, void *data, size_t length) {
  const unsigned long *const words = (const unsigned long *)data;
  unsigned long sum = 0;
  (void)token;
  for (size_t i = 0; i < length / sizeof *words; i++) sum += words[i];
  read_sum = sum;
}
static void on_told(gex_Token_t token) {
  (void)token;
  told++;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

/* ---- figures: rank 0 performs `count` operations, which rank 1 serves ---- */

/* Defines a function that repeats a transfer. The addresses are in registers, as in a loop over an
 * array. In functions with `_reading`, they are read from memory each time. */
#define TRANSFERS(name, call)                        \
  static void name(unsigned count) {                 \
    const gex_TM_t to = team;                        \
    const gex_Rank_t rank = peer;                    \
    char *const remote = there, *const local = buffer; \
    const size_t length = bytes;                     \
    (void)to, (void)local, (void)length;             \
    while (count--) call;                            \
  }
TRANSFERS(put, gex_RMA_PutBlocking(to, rank, remote, local, length, 0))
TRANSFERS(put8, gex_RMA_PutBlocking(to, rank, remote, local, 8, 0))
TRANSFERS(put8_event, gex_Event_Wait(gex_RMA_PutNB(to, rank, remote, local, 8, GEX_EVENT_NOW, 0)))
TRANSFERS(get8, gex_RMA_GetBlocking(to, local, rank, remote, 8, 0))
TRANSFERS(get, gex_RMA_GetBlocking(to, local, rank, remote, length, 0))
/* These atomics act on one number. If the peer is mapped, they are the processor's
 * instruction, which is measured without a library as well. */
TRANSFERS(fetch_add, gex_Event_Wait(gex_AD_OpNB_U64(counts, (uint64_t *)local, rank, remote, GEX_OP_FADD, 1, 0, 0)))
TRANSFERS(add, gex_Event_Wait(gex_AD_OpNB_U64(counts, NULL, rank, remote, GEX_OP_ADD, 1, 0, 0)))
TRANSFERS(add_double, gex_Event_Wait(gex_AD_OpNB_DBL(sums, NULL, rank, remote, GEX_OP_ADD, 1, 0, 0)))
static void adds_implicit(unsigned count) {
  while (count--) gex_AD_OpNBI_U64(counts, NULL, peer, there, GEX_OP_ADD, 1, 0, 0);
  gex_NBI_Wait(GEX_EC_RMW, 0);
}
static void fetch_add_bare(unsigned count) {
  uint64_t *const number = (uint64_t *)(void *)mapped, *const result = (uint64_t *)(void *)buffer;
  while (count--) *(volatile uint64_t *)result = __atomic_fetch_add(number, 1, __ATOMIC_ACQ_REL);
}
static void put8_reading(unsigned count) {
  while (count--) gex_RMA_PutBlocking(team, peer, there, buffer, 8, 0);
}
static void get8_reading(unsigned count) {
  while (count--) gex_RMA_GetBlocking(team, buffer, peer, there, 8, 0);
}

/* The following operations transfer every second run of an array of runs of `bytes` bytes. */
static const size_t strided_runs[] = {RUNS};
static ptrdiff_t strides[1];
static void *remote_runs[RUNS], *local_runs[RUNS];
static void runs_of(size_t length) {
  strides[0] = (ptrdiff_t)(2 * length);
  for (size_t i = 0; i < RUNS; i++) {
    remote_runs[i] = there + 2 * length * i;
    local_runs[i] = buffer + 2 * length * i;
  }
}
TRANSFERS(strided_put, gex_VIS_StridedPutBlocking(to, rank, remote, strides, local, strides, length, strided_runs, 1, 0))
TRANSFERS(strided_get, gex_VIS_StridedGetBlocking(to, local, strides, rank, remote, strides, length, strided_runs, 1, 0))
TRANSFERS(indexed_put, gex_VIS_IndexedPutBlocking(to, rank, RUNS, remote_runs, length, RUNS, local_runs, length, 0))
TRANSFERS(indexed_get, gex_VIS_IndexedGetBlocking(to, RUNS, local_runs, length, rank, RUNS, remote_runs, length, 0))
/* Copies the same runs without a library. */
static void runs_bare(unsigned count) {
  const size_t length = bytes;
  while (count--)
    for (size_t i = 0; i < RUNS; i++) memcpy(mapped + 2 * length * i, local_runs[i], length);
}
static void wait_for_pong(unsigned before) { GASNET_BLOCKUNTIL(pongs != before); }
#define ROUND_TRIPS(name, request)   \
  static void name(unsigned count) { \
    while (count--) {                \
      const unsigned before = pongs; \
      request;                       \
      wait_for_pong(before);         \
    }                                \
  }
ROUND_TRIPS(short_round_trip, gex_AM_RequestShort0(team, peer, PING_SHORT, 0))
ROUND_TRIPS(medium_round_trip, gex_AM_RequestMedium0(team, peer, PING_MEDIUM, buffer, bytes, GEX_EVENT_NOW, 0))
ROUND_TRIPS(long_round_trip, gex_AM_RequestLong0(team, peer, PING_LONG, buffer, bytes, there, GEX_EVENT_NOW, 0))

/* Defines a function that sends messages in one direction. It ends when the last one has been
 * handled. */
#define FLOOD(name, request)         \
  static void name(unsigned count) { \
    while (count--) request;         \
    short_round_trip(1);             \
  }
FLOOD(short_flood, gex_AM_RequestShort0(team, peer, COUNT_SHORT, 0))
FLOOD(medium_flood, gex_AM_RequestMedium0(team, peer, COUNT_MEDIUM, buffer, bytes, GEX_EVENT_NOW, 0))
FLOOD(medium_flood_read, gex_AM_RequestMedium0(team, peer, READ_MEDIUM, buffer, bytes, GEX_EVENT_NOW, 0))
FLOOD(long_flood, gex_AM_RequestLong0(team, peer, COUNT_LONG, buffer, bytes, there, GEX_EVENT_NOW, 0))

static int ascending(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double seconds = 0.02;

/* Returns the time of one operation in nanoseconds, which is the median of repetitions that take
 * `seconds` each. */
static double measured(void (*operations)(unsigned)) {
  double all[REPETITIONS];
  unsigned count = 100;
  for (;;) {
    const double begin = now();
    operations(count);
    const double taken = now() - begin;
    if (taken > seconds * 2e8 || count > 100000000U) {
      const double wanted = (double)count * seconds * 1e9 / (taken > 1 ? taken : 1);
      count = wanted < 10 ? 10 : wanted > 1e8 ? 100000000U : (unsigned)wanted;
      break;
    }
    count *= 4;
  }
  for (int i = 0; i < REPETITIONS; i++) {
    const double begin = now();
    operations(count);
    all[i] = (now() - begin) / count;
  }
  qsort(all, REPETITIONS, sizeof all[0], ascending);
  return all[REPETITIONS / 2];
}

static void figure(const char *name, size_t size, void (*operations)(unsigned)) {
  bytes = size;
  barrier();
  if (me == 0) {
    printf("%s %zu %.2f\n", name, size, measured(operations));
    fflush(stdout);
    gex_AM_RequestShort0(team, peer, TOLD, 0);
  } else {
    const unsigned before = told;
    GASNET_BLOCKUNTIL(told != before);
  }
  barrier();
}

/* Measures an operation of all ranks, as the median of repetitions of `count` operations. */
static void together(const char *name, size_t size, void (*operations)(unsigned), unsigned count) {
  double all[REPETITIONS];
  bytes = size;
  for (int i = 0; i < REPETITIONS; i++) {
    barrier();
    const double begin = now();
    operations(count);
    all[i] = (now() - begin) / count;
  }
  qsort(all, REPETITIONS, sizeof all[0], ascending);
  if (me == 0) {
    printf("%s %zu %.2f\n", name, size, all[REPETITIONS / 2]);
    fflush(stdout);
  }
}

/* Sends a word to the peer and one back without a library. Like a queue, it uses several lines in
 * turn. This is the limit for a short round trip in the same run. */
static void line_round_trip(unsigned count) {
  enum { LINE = 64, LINES = 64, BEHIND_THE_PUTS = SEGMENT / 2 };
  static unsigned long turn;
  while (count--) {
    const size_t place = BEHIND_THE_PUTS + ++turn % LINES * LINE;
    unsigned long *const out = (unsigned long *)(mapped + place);
    const unsigned long *const in = (const unsigned long *)(here + place);
    if (me == 0) __atomic_store_n(out, turn, __ATOMIC_RELEASE);
    while (__atomic_load_n(in, __ATOMIC_ACQUIRE) != turn) continue;
    if (me != 0) __atomic_store_n(out, turn, __ATOMIC_RELEASE);
  }
}
static void ranges(void) {
  static const size_t sizes[] = {8, 64, 512, 4096};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    runs_of(sizes[i]);
    if (mapped) figure("runs-bare", sizes[i], runs_bare);
    figure("strided-put", sizes[i], strided_put);
    figure("strided-get", sizes[i], strided_get);
    figure("indexed-put", sizes[i], indexed_put);
    figure("indexed-get", sizes[i], indexed_get);
  }
}

static void barriers(unsigned count) {
  while (count--) barrier();
}
static void split_barriers(unsigned count) {
  while (count--) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    (void)gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
  }
}

/* Each rank is the root in turn, so that no rank runs far ahead of the others. */
static void broadcasts(unsigned count) {
  while (count--) gex_Event_Wait(gex_Coll_BroadcastNB(team, count % ranks, here, here, bytes, 0));
}
static void reductions_to_one(unsigned count) {
  while (count--)
    gex_Event_Wait(gex_Coll_ReduceToOneNB(team, count % ranks, here, buffer, GEX_DT_U64, 8, bytes / 8, GEX_OP_ADD, NULL,
                                          NULL, 0));
}
static void reductions_to_all(unsigned count) {
  while (count--)
    gex_Event_Wait(gex_Coll_ReduceToAllNB(team, here, buffer, GEX_DT_U64, 8, bytes / 8, GEX_OP_ADD, NULL, NULL, 0));
}
/* Splits a team into one of all ranks, with the recommended scratch space, and destroys it. */
static void splits(unsigned count) {
  gex_TM_t made;
  const size_t scratch = gex_TM_Split(&made, team, 0, (int)me, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED);
  while (count--) {
    gex_TM_Split(&made, team, 0, (int)me, here, scratch, 0);
    gex_TM_Destroy(made, NULL, 0);
  }
}
static void collectives(void) {
  static const size_t sizes[] = {8, 1024, 16384, 131072, 1 << 20};
  static const unsigned counts[] = {2000, 2000, 500, 100, 20};
  together("barrier", 0, barriers, 20000 / (ranks - 1));
  together("split-barrier", 0, split_barriers, 20000 / (ranks - 1));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    together("broadcast", sizes[i], broadcasts, counts[i]);
    together("reduce-to-one", sizes[i], reductions_to_one, counts[i]);
    together("reduce-to-all", sizes[i], reductions_to_all, counts[i]);
  }
  together("team-split", 0, splits, 200);
}

/* Pins rank i to the i-th core that it may use. */
static void pin(void) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
  const int cores = CPU_COUNT(&allowed);
  int place = cores ? (int)me % cores : 0;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &allowed) || place--) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static void check(int code) {
  if (code == GASNET_OK) return;
  fprintf(stderr, "gasnet: error %d\n", code);
  exit(1);
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_Segment_t segment;
  const unsigned request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t handlers[] = {
    {PING_SHORT, (gex_AM_Fn_t)ping_short, request | GEX_FLAG_AM_SHORT, 0, NULL, "ping_short"},
    {PONG_SHORT, (gex_AM_Fn_t)pong_short, reply | GEX_FLAG_AM_SHORT, 0, NULL, "pong_short"},
    {PING_MEDIUM, (gex_AM_Fn_t)ping_medium, request | GEX_FLAG_AM_MEDIUM, 0, NULL, "ping_medium"},
    {PONG_MEDIUM, (gex_AM_Fn_t)pong_medium, reply | GEX_FLAG_AM_MEDIUM, 0, NULL, "pong_medium"},
    {PING_LONG, (gex_AM_Fn_t)ping_long, request | GEX_FLAG_AM_LONG, 0, NULL, "ping_long"},
    {PONG_LONG, (gex_AM_Fn_t)pong_medium, reply | GEX_FLAG_AM_LONG, 0, NULL, "pong_long"},
    {COUNT_SHORT, (gex_AM_Fn_t)count_short, request | GEX_FLAG_AM_SHORT, 0, NULL, "count_short"},
    {COUNT_MEDIUM, (gex_AM_Fn_t)count_payload, request | GEX_FLAG_AM_MEDIUM, 0, NULL, "count_medium"},
    {COUNT_LONG, (gex_AM_Fn_t)count_payload, request | GEX_FLAG_AM_LONG, 0, NULL, "count_long"},
    {READ_MEDIUM, (gex_AM_Fn_t)read_payload, request | GEX_FLAG_AM_MEDIUM, 0, NULL, "read_medium"},
    {TOLD, (gex_AM_Fn_t)on_told, request | GEX_FLAG_AM_SHORT, 0, NULL, "told"},
  };

  check(gex_Client_Init(&client, &ep, &team, "PERF", &argc, &argv, 0));
  check(gex_EP_RegisterHandlers(ep, handlers, sizeof handlers / sizeof handlers[0]));
  check(gex_Segment_Attach(&segment, team, SEGMENT));
  if (argc > 1) seconds = atof(argv[1]);
  me = gex_TM_QueryRank(team);
  ranks = gex_TM_QuerySize(team);
  if (ranks < 2) {
    fprintf(stderr, "gasnet: needs at least 2 ranks\n");
    gasnet_exit(1);
  }
  peer = (me + 1) % ranks;
  if (ranks == 2) pin();
  void *address, *address_here;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, peer, &address, &address_here, NULL, 0));
  there = (char *)address;
  mapped = (char *)address_here;
  here = (char *)gex_Segment_QueryAddr(segment);
  buffer = (char *)malloc(SEGMENT);
  memset(buffer, 1, SEGMENT);
  memset(here, 0, SEGMENT);
  barrier();

  if (ranks > 2) {
    collectives();
    barrier();
    gasnet_exit(0);
  }
  gex_AD_Create(&counts, team, GEX_DT_U64, GEX_OP_FADD | GEX_OP_ADD, 0);
  gex_AD_Create(&sums, team, GEX_DT_DBL, GEX_OP_ADD, 0);
  figure("put", 8, put8);
  figure("put-reading", 8, put8_reading);
  figure("put-event", 8, put8_event);
  figure("get", 8, get8);
  figure("get-reading", 8, get8_reading);
  figure("put", 4096, put);
  figure("get", 4096, get);
  figure("put", 1 << 20, put);
  if (mapped) figure("fetch-add-bare", 8, fetch_add_bare);
  figure("fetch-add", 8, fetch_add);
  figure("add", 8, add);
  figure("add-implicit", 8, adds_implicit);
  figure("add-double", 8, add_double);
  ranges();
  if (mapped) together("line-round-trip", 0, line_round_trip, 20000);
  figure("short-round-trip", 0, short_round_trip);
  figure("medium-round-trip", 512, medium_round_trip);
  figure("medium-round-trip", 4096, medium_round_trip);
  figure("long-round-trip", 512, long_round_trip);
  figure("long-round-trip", 65536, long_round_trip);
  figure("short-flood", 0, short_flood);
  figure("medium-flood", 512, medium_flood);
  figure("medium-flood", 4096, medium_flood);
  figure("medium-flood-read", 512, medium_flood_read);
  figure("medium-flood-read", 1024, medium_flood_read);
  figure("medium-flood-read", 4096, medium_flood_read);
  figure("long-flood", 512, long_flood);
  figure("long-flood", 65536, long_flood);
  collectives();
  barrier();
  gasnet_exit(0);
}
