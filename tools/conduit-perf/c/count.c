/* Repeats operations of one rank on itself through the C headers, in sections whose
 * instructions are counted.
 *
 * `count COUNT[,COUNT...]` prints the name of each operation, and runs one section per COUNT,
 * in which the operation is repeated that many times. */
#include <gasnetex.h>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_SHORT = GEX_AM_INDEX_BASE, COUNT_PAYLOAD, COUNT_LONG, PING_SHORT, PING_MEDIUM, PONG_SHORT, PONG_MEDIUM };
enum { SEGMENT = 1 << 16, PAYLOAD = 512, RANGES = 16 };

static gex_TM_t team;
static gex_Rank_t me;
static char *remote; /* this rank's segment */
static char *buffer;
static size_t bytes = 8;
static volatile unsigned long handled;
static gex_AD_t counts;

static void count_short(gex_Token_t token) {
  (void)token;
  handled++;
}
static void count_payload(gex_Token_t token, void *data, size_t length) {
  (void)token;
  (void)data;
  (void)length;
  handled++;
}
static void ping_short(gex_Token_t token) { gex_AM_ReplyShort0(token, PONG_SHORT, 0); }
static void ping_medium(gex_Token_t token, void *data, size_t length) {
  gex_AM_ReplyMedium0(token, PONG_MEDIUM, data, length, GEX_EVENT_NOW, 0);
}

/* Prevents the compiler from merging an operation with the next one. Costs no instruction. */
#define FENCE() __asm__ volatile("" ::: "memory")

/* Defines a function that repeats an operation. The arguments are in registers, as in a loop
 * over an array. */
#define OPERATION(name, call)                               \
  static void name(unsigned long count) {                   \
    const gex_TM_t to = team;                               \
    const gex_Rank_t rank = me;                             \
    char *const there = remote, *const here = buffer;       \
    (void)to, (void)rank, (void)there, (void)here;          \
    while (count--) {                                       \
      call;                                                 \
      FENCE();                                              \
    }                                                       \
  }
OPERATION(put, gex_RMA_PutBlocking(to, rank, there, here, 8, 0))
OPERATION(put_event, gex_Event_Wait(gex_RMA_PutNB(to, rank, there, here, 8, GEX_EVENT_NOW, 0)))
OPERATION(put_value, gex_RMA_PutBlockingVal(to, rank, there, count, 8, 0))
OPERATION(put_implicit, gex_RMA_PutNBI(to, rank, there, here, 8, GEX_EVENT_NOW, 0); gex_NBI_Wait(GEX_EC_PUT, 0))
OPERATION(get, gex_RMA_GetBlocking(to, here, rank, there, 8, 0))
OPERATION(get_value, *(volatile gex_RMA_Value_t *)(void *)here = gex_RMA_GetBlockingVal(to, rank, there, 8, 0))
OPERATION(fetch_add, gex_Event_Wait(gex_AD_OpNB_U64(counts, (uint64_t *)(void *)here, rank, there, GEX_OP_FADD, 1, 0, 0)))
OPERATION(add, gex_Event_Wait(gex_AD_OpNB_U64(counts, NULL, rank, there, GEX_OP_ADD, 1, 0, 0)))
/* In these operations, the arguments are read from memory each time. In those with `_length`, the
 * length is read as well. */
OPERATION(put_reading, gex_RMA_PutBlocking(team, me, remote, buffer, 8, 0))
OPERATION(put_length, gex_RMA_PutBlocking(team, me, remote, buffer, bytes, 0))
OPERATION(get_reading, gex_RMA_GetBlocking(team, buffer, me, remote, 8, 0))
OPERATION(get_length, gex_RMA_GetBlocking(team, buffer, me, remote, bytes, 0))

/* The following operations transfer every second number of an array. */
static const size_t strided[] = {RANGES};
static ptrdiff_t strides[] = {16};
static void *remote_numbers[RANGES], *local_numbers[RANGES];
OPERATION(put_strided, gex_VIS_StridedPutBlocking(to, rank, there, strides, here, strides, 8, strided, 1, 0))
OPERATION(get_strided, gex_VIS_StridedGetBlocking(to, here, strides, rank, there, strides, 8, strided, 1, 0))
OPERATION(put_indexed, gex_VIS_IndexedPutBlocking(to, rank, RANGES, remote_numbers, 8, RANGES, local_numbers, 8, 0))
OPERATION(get_indexed, gex_VIS_IndexedGetBlocking(to, RANGES, local_numbers, 8, rank, RANGES, remote_numbers, 8, 0))

/* Defines a function that repeatedly sends a request and waits until the handler of the
 * request, or of its reply, has run. */
#define MESSAGE(name, request) OPERATION(name, const unsigned long before = handled; request; GASNET_BLOCKUNTIL(handled != before))
MESSAGE(am_short, gex_AM_RequestShort0(to, rank, COUNT_SHORT, 0))
MESSAGE(am_short_round_trip, gex_AM_RequestShort0(to, rank, PING_SHORT, 0))
MESSAGE(am_medium, gex_AM_RequestMedium0(to, rank, COUNT_PAYLOAD, here, PAYLOAD, GEX_EVENT_NOW, 0))
MESSAGE(am_medium_round_trip, gex_AM_RequestMedium0(to, rank, PING_MEDIUM, here, PAYLOAD, GEX_EVENT_NOW, 0))
MESSAGE(am_long, gex_AM_RequestLong0(to, rank, COUNT_LONG, here, PAYLOAD, there, GEX_EVENT_NOW, 0))

OPERATION(barrier, gex_Event_Wait(gex_Coll_BarrierNB(to, 0)))
OPERATION(broadcast, gex_Event_Wait(gex_Coll_BroadcastNB(to, 0, there, here, PAYLOAD, 0)))

static const struct {
  const char *name;
  void (*repeat)(unsigned long count);
} operations[] = {
  {"put", put},
  {"put-event", put_event},
  {"put-value", put_value},
  {"put-nbi", put_implicit},
  {"put-reading", put_reading},
  {"put-length", put_length},
  {"get", get},
  {"get-value", get_value},
  {"get-reading", get_reading},
  {"get-length", get_length},
  {"fetch-add", fetch_add},
  {"add", add},
  {"put-strided", put_strided},
  {"get-strided", get_strided},
  {"put-indexed", put_indexed},
  {"get-indexed", get_indexed},
  {"am-short", am_short},
  {"am-short-round-trip", am_short_round_trip},
  {"am-medium", am_medium},
  {"am-medium-round-trip", am_medium_round_trip},
  {"am-long", am_long},
  {"barrier", barrier},
  {"broadcast", broadcast},
};

/* Runs a section. Callgrind finds this function by its name. */
void conduit_counted_section(void (*repeat)(unsigned long), unsigned long count);
__attribute__((noinline)) void conduit_counted_section(void (*repeat)(unsigned long), unsigned long count) {
  repeat(count);
  FENCE(); /* Prevents a tail call, which would end the section before the operation. */
}

static void check(int code) {
  if (code == GASNET_OK) return;
  fprintf(stderr, "count: error %d\n", code);
  exit(1);
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_Segment_t segment;
  const unsigned request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t handlers[] = {
    {COUNT_SHORT, (gex_AM_Fn_t)count_short, request | GEX_FLAG_AM_SHORT, 0, NULL, "count_short"},
    {COUNT_PAYLOAD, (gex_AM_Fn_t)count_payload, request | GEX_FLAG_AM_MEDIUM, 0, NULL, "count_payload"},
    {COUNT_LONG, (gex_AM_Fn_t)count_payload, request | GEX_FLAG_AM_LONG, 0, NULL, "count_long"},
    {PING_SHORT, (gex_AM_Fn_t)ping_short, request | GEX_FLAG_AM_SHORT, 0, NULL, "ping_short"},
    {PING_MEDIUM, (gex_AM_Fn_t)ping_medium, request | GEX_FLAG_AM_MEDIUM, 0, NULL, "ping_medium"},
    {PONG_SHORT, (gex_AM_Fn_t)count_short, reply | GEX_FLAG_AM_SHORT, 0, NULL, "pong_short"},
    {PONG_MEDIUM, (gex_AM_Fn_t)count_payload, reply | GEX_FLAG_AM_MEDIUM, 0, NULL, "pong_medium"},
  };

  check(gex_Client_Init(&client, &ep, &team, "COUNT", &argc, &argv, 0));
  check(gex_EP_RegisterHandlers(ep, handlers, sizeof handlers / sizeof handlers[0]));
  check(gex_Segment_Attach(&segment, team, SEGMENT));
  if (argc != 2 || gex_TM_QuerySize(team) != 1) {
    fprintf(stderr, "usage, in a job of one rank: count COUNT[,COUNT...]\n");
    gasnet_exit(2);
  }
  me = gex_TM_QueryRank(team);
  remote = (char *)gex_Segment_QueryAddr(segment);
  buffer = (char *)calloc(1, SEGMENT);
  if (!buffer) gasnet_exit(1);
  for (size_t i = 0; i < RANGES; i++) {
    remote_numbers[i] = remote + 16 * i;
    local_numbers[i] = buffer + 16 * i;
  }
  gex_AD_Create(&counts, team, GEX_DT_U64, GEX_OP_FADD | GEX_OP_ADD, 0);
  for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
    puts(operations[i].name);
    for (const char *rest = argv[1]; rest;) {
      conduit_counted_section(operations[i].repeat, strtoul(rest, NULL, 10));
      rest = strchr(rest, ',');
      if (rest) rest++;
    }
  }
  gasnet_exit(0);
}
