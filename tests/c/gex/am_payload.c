/* Sends active messages with payload: sizes up to the limits, every option of local completion, the
 * immediate flag, longs to any address, and more requests than there are credits. */
#include "start.h"

enum { MEDIUM = GEX_AM_INDEX_BASE, LONG, EMPTY, ECHO_MEDIUM, ECHO_LONG, BACK_MEDIUM, BACK_LONG, COUNT, HANDLERS };

#define SEGMENT ((uintptr_t)1 << 21)
#define MOST_LONG ((size_t)1 << 20)

static volatile unsigned int received, replied, counted;
/* The number of messages that this rank must have received so far. Peers may be ahead and have sent
 * more. */
static unsigned int expected;
static char *source;
static const void *last_address;
static size_t last_bytes;

static void medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  /* The payload is aligned for any type. */
  CHECK_EQ((uintptr_t)at % 8, 0);
  check_filled(at, bytes, (unsigned int)message);
  /* The handler owns the buffer and may overwrite it. */
  memset(at, 0, bytes);
  last_bytes = bytes;
  received++;
}

static void to_segment(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  check_filled(at, bytes, (unsigned int)message);
  last_address = at;
  last_bytes = bytes;
  received++;
}

static void empty(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t high, gex_AM_Arg_t low) {
  (void)token;
  CHECK_EQ(bytes, 0);
  CHECK_EQ((uintptr_t)at, (uint64_t)(uint32_t)high << 32 | (uint32_t)low);
  received++;
}

/* The local completion of the last reply. The handler stores it, and the replier tests it later,
 * because a handler may not do so. The argument of a request selects the option of its reply. */
static gex_Event_t reply_local;

static void echo_medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  gex_Event_t *const option = message % 2 ? GEX_EVENT_NOW : &reply_local;
  CHECK_EQ(gex_AM_ReplyMedium1(token, BACK_MEDIUM, at, bytes, option, 0, message), 0);
}

static void echo_long(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  gex_Event_t *const option = message % 2 ? GEX_EVENT_NOW : &reply_local;
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  CHECK_EQ(gex_AM_ReplyLong1(token, BACK_LONG, at, bytes, base[info.gex_srcrank] + SEGMENT / 2, option, 0, message), 0);
}

static void back_medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  check_filled(at, bytes, (unsigned int)message);
  last_bytes = bytes;
  replied++;
}

static void back_long(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  CHECK(bytes == 0 || at == base[me] + SEGMENT / 2);
  check_filled(at, bytes, (unsigned int)message);
  last_bytes = bytes;
  replied++;
}

static void count(gex_Token_t token) {
  (void)token;
  counted++;
}

/* The limits that were queried before init. They hold for any rank and must not change after init.
 * */
static size_t medium_before, reply_medium_before, long_before, reply_long_before;

static void limits_before(void) {
  medium_before = gex_AM_LUBRequestMedium();
  reply_medium_before = gex_AM_LUBReplyMedium();
  long_before = gex_AM_LUBRequestLong();
  reply_long_before = gex_AM_LUBReplyLong();
}

static void limits(gex_Rank_t peer) {
  unsigned int n;
  const size_t least_medium = gex_AM_LUBRequestMedium(), least_long = gex_AM_LUBRequestLong();
  const size_t least_reply_medium = gex_AM_LUBReplyMedium(), least_reply_long = gex_AM_LUBReplyLong();
  CHECK(least_medium >= 512 && least_reply_medium >= 512 && least_long >= 512 && least_reply_long >= 512);
  CHECK(medium_before == least_medium && reply_medium_before == least_reply_medium && long_before == least_long);
  CHECK(reply_long_before >= 512 && reply_long_before <= least_reply_long);
  for (n = 0; n <= gex_AM_MaxArgs(); ++n) {
    const gex_Flags_t flags[] = {0, GEX_FLAG_IMMEDIATE, GEX_FLAG_AM_PREPARE_LEAST_CLIENT,
                                 GEX_FLAG_AM_PREPARE_LEAST_ALLOC};
    unsigned int i;
    for (i = 0; i < 4; ++i) {
      const gex_Event_t *const local = i == 3 ? NULL : GEX_EVENT_NOW;
      const gex_Rank_t any = GEX_RANK_INVALID;
      CHECK(gex_AM_MaxRequestMedium(team, peer, local, flags[i], n) >= least_medium);
      CHECK(gex_AM_MaxReplyMedium(team, peer, local, flags[i], n) >= least_reply_medium);
      CHECK(gex_AM_MaxRequestMedium(team, any, local, flags[i], n) >= least_medium);
      CHECK(gex_AM_MaxReplyMedium(team, any, local, flags[i], n) >= least_reply_medium);
      CHECK(gex_AM_MaxRequestMedium(team, any, local, flags[i], n) <=
            gex_AM_MaxRequestMedium(team, peer, local, flags[i], n));
      CHECK(gex_AM_MaxReplyLong(team, any, local, flags[i], n) <= gex_AM_MaxReplyLong(team, peer, local, flags[i], n));
      CHECK(gex_AM_MaxRequestLong(team, peer, local, flags[i], n) >= 512);
      CHECK(gex_AM_MaxRequestLong(team, any, local, flags[i], n) >= 512);
      CHECK(gex_AM_MaxReplyLong(team, peer, local, flags[i], n) >= 512);
      CHECK(gex_AM_MaxReplyLong(team, any, local, flags[i], n) >= 512);
      if (i < 2) {
        CHECK(gex_AM_MaxRequestLong(team, peer, local, flags[i], n) >= least_long);
        CHECK(gex_AM_MaxReplyLong(team, peer, local, flags[i], n) >= least_reply_long);
      }
    }
  }
}

/* Sends mediums of this size, one with each option and one that gets a reply. */
static void send_medium(gex_Rank_t peer, size_t bytes) {
  static unsigned int message;
  gex_Event_t local = GEX_EVENT_NO_OP;
  int done;
  message++;
  fill(source, bytes, message);
  CHECK_EQ(gex_AM_RequestMedium1(team, peer, MEDIUM, source, bytes, GEX_EVENT_NOW, 0, (gex_AM_Arg_t)message), 0);
  /* With GEX_EVENT_NOW, the source belongs to the caller again when the call returns. */
  memset(source, 0, bytes);
  fill(source, bytes, ++message);
  CHECK_EQ(gex_AM_RequestMedium1(team, peer, MEDIUM, source, bytes, &local, 0, (gex_AM_Arg_t)message), 0);
  gex_Event_Wait(local);
  memset(source, 0, bytes);
  fill(source, bytes, ++message);
  CHECK_EQ(gex_AM_RequestMedium1(team, peer, MEDIUM, source, bytes, GEX_EVENT_GROUP, 0, (gex_AM_Arg_t)message), 0);
  gex_NBI_Wait(GEX_EC_AM, 0);
  memset(source, 0, bytes);
  /* With the immediate flag, the call either sends the message or has no effect. */
  fill(source, bytes, ++message);
  do {
    done = !gex_AM_RequestMedium1(team, peer, MEDIUM, source, bytes, GEX_EVENT_NOW, GEX_FLAG_IMMEDIATE,
                                  (gex_AM_Arg_t)message);
    if (!done) gasnet_AMPoll();
  } while (!done);
  memset(source, 0, bytes);
}

static void send_long(gex_Rank_t peer, size_t bytes, size_t place) {
  static unsigned int message;
  char *const there = base[peer] + place;
  gex_Event_t local = GEX_EVENT_NO_OP;
  const gex_Flags_t flags = GEX_FLAG_IMMEDIATE;
  int done;
  /* The longs are sent one after another, because all have the same destination. */
  fill(source, bytes, ++message);
  CHECK_EQ(gex_AM_RequestLong1(team, peer, LONG, source, bytes, there, GEX_EVENT_NOW, 0, (gex_AM_Arg_t)message), 0);
  memset(source, 0, bytes);
  barrier();
  expected++;
  GASNET_BLOCKUNTIL(received == expected);
  CHECK_EQ(last_bytes, bytes);
  CHECK(last_address == base[me] + place);
  barrier();
  fill(source, bytes, ++message);
  CHECK_EQ(gex_AM_RequestLong1(team, peer, LONG, source, bytes, there, &local, 0, (gex_AM_Arg_t)message), 0);
  gex_Event_Wait(local);
  memset(source, 0, bytes);
  barrier();
  expected++;
  GASNET_BLOCKUNTIL(received == expected);
  barrier();
  fill(source, bytes, ++message);
  CHECK_EQ(gex_AM_RequestLong1(team, peer, LONG, source, bytes, there, GEX_EVENT_GROUP, 0, (gex_AM_Arg_t)message), 0);
  while (gex_NBI_Test(GEX_EC_AM, 0) != GASNET_OK) gasnet_AMPoll();
  memset(source, 0, bytes);
  barrier();
  expected++;
  GASNET_BLOCKUNTIL(received == expected);
  barrier();
  fill(source, bytes, ++message);
  do {
    done = !gex_AM_RequestLong1(team, peer, LONG, source, bytes, there, GEX_EVENT_NOW, flags, (gex_AM_Arg_t)message);
    if (!done) gasnet_AMPoll();
  } while (!done);
  barrier();
  expected++;
  GASNET_BLOCKUNTIL(received == expected);
  barrier();
}

static void mediums(gex_Rank_t peer) {
  const size_t most = gex_AM_MaxRequestMedium(team, peer, GEX_EVENT_NOW, 0, 1);
  const size_t sizes[] = {0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 4095, most - 1, most};
  size_t i;
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) send_medium(peer, sizes[i]);
  barrier();
  expected += 4 * sizeof(sizes) / sizeof(sizes[0]);
  GASNET_BLOCKUNTIL(received == expected);
  barrier();
}

static void longs(gex_Rank_t peer) {
  const size_t sizes[] = {1, 2, 7, 8, 63, 1000, 4096, 65537, MOST_LONG};
  size_t i;
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    send_long(peer, sizes[i], 0);
    send_long(peer, sizes[i], 13 * i + 1);
    send_long(peer, sizes[i], SEGMENT - sizes[i]);
  }
}

/* Sends longs without bytes. Their handlers must get the destination address unchanged. */
static void empty_longs(gex_Rank_t peer) {
  const uint64_t addresses[] = {0, 1, 0xFFFFFFFFFFFFFFFFU, 0x8000000000000000U, 0x7FFFFFFF80000000U, 4096};
  const size_t count = sizeof(addresses) / sizeof(addresses[0]);
  size_t i;
  for (i = 0; i < count; ++i)
    CHECK_EQ(gex_AM_RequestLong2(team, peer, EMPTY, i % 2 ? source : NULL, 0, (void *)(uintptr_t)addresses[i],
                                 GEX_EVENT_NOW, 0, (gex_AM_Arg_t)(addresses[i] >> 32), (gex_AM_Arg_t)addresses[i]),
             0);
  barrier();
  expected += (unsigned int)count;
  GASNET_BLOCKUNTIL(received == expected);
  barrier();
}

static void replies(gex_Rank_t peer) {
  const size_t most_medium = gex_AM_MaxReplyMedium(team, peer, GEX_EVENT_NOW, 0, 1);
  size_t most_long = gex_AM_MaxReplyLong(team, peer, GEX_EVENT_NOW, 0, 1);
  size_t sizes[] = {0, 1, 8, 100, 512, 0, 0};
  size_t i;
  if (most_long > SEGMENT / 2) most_long = SEGMENT / 2;
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    const gex_AM_Arg_t message = (gex_AM_Arg_t)i;
    const unsigned int before = replied;
    sizes[5] = sizes[6] = most_medium;
    fill(source, sizes[i], (unsigned int)i);
    CHECK_EQ(gex_AM_RequestMedium1(team, peer, ECHO_MEDIUM, source, sizes[i], GEX_EVENT_NOW, 0, message), 0);
    GASNET_BLOCKUNTIL(replied == before + 1);
    CHECK_EQ(last_bytes, sizes[i]);
    barrier();
    gex_Event_Wait(reply_local);
    reply_local = GEX_EVENT_INVALID;
    barrier();
    sizes[5] = sizes[6] = most_long;
    fill(source, sizes[i], (unsigned int)i);
    CHECK_EQ(gex_AM_RequestLong1(team, peer, ECHO_LONG, source, sizes[i], base[peer], GEX_EVENT_NOW, 0, message), 0);
    GASNET_BLOCKUNTIL(replied == before + 2);
    CHECK_EQ(last_bytes, sizes[i]);
    barrier();
    gex_Event_Wait(reply_local);
    reply_local = GEX_EVENT_INVALID;
    barrier();
  }
}

/* Sends more requests to all ranks at once than there are credits and buffers. */
static void flood(void) {
  const unsigned int rounds = 400;
  unsigned int i;
  gex_Rank_t peer;
  for (i = 0; i < rounds; ++i)
    for (peer = 0; peer < size; ++peer) CHECK_EQ(gex_AM_RequestShort0(team, peer, COUNT, 0), 0);
  GASNET_BLOCKUNTIL(counted == rounds * size);
  barrier();
  CHECK_EQ(counted, rounds * size);
}

int main(int argc, char **argv) {
  const gex_Flags_t request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t handlers[] = {
    {MEDIUM, (gex_AM_Fn_t)medium, GEX_FLAG_AM_MEDIUM | request, 1, NULL, "medium"},
    {LONG, (gex_AM_Fn_t)to_segment, GEX_FLAG_AM_LONG | request, 1, NULL, "long"},
    {EMPTY, (gex_AM_Fn_t)empty, GEX_FLAG_AM_LONG | request, 2, NULL, "empty"},
    {ECHO_MEDIUM, (gex_AM_Fn_t)echo_medium, GEX_FLAG_AM_MEDIUM | request, 1, NULL, "echo medium"},
    {ECHO_LONG, (gex_AM_Fn_t)echo_long, GEX_FLAG_AM_LONG | request, 1, NULL, "echo long"},
    {BACK_MEDIUM, (gex_AM_Fn_t)back_medium, GEX_FLAG_AM_MEDIUM | reply, 1, NULL, "back medium"},
    {BACK_LONG, (gex_AM_Fn_t)back_long, GEX_FLAG_AM_LONG | reply, 1, NULL, "back long"},
    {COUNT, (gex_AM_Fn_t)count, GEX_FLAG_AM_SHORT | request, 0, NULL, "count"}};
  limits_before();
  start(&argc, &argv, handlers, HANDLERS - GEX_AM_INDEX_BASE, SEGMENT);
  source = (char *)malloc(SEGMENT);
  CHECK(source != NULL);
  limits(neighbour(1));
  limits(me);
  mediums(neighbour(1));
  mediums(me);
  longs(neighbour(1));
  longs(me);
  empty_longs(neighbour(1));
  empty_longs(me);
  replies(neighbour(1));
  replies(me);
  flood();
  free(source);
  finish();
  return 0;
}
