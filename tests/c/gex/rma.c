/* Puts and gets: blocking, with events, implicit, and of values. They have any size and alignment
 * and go to a neighbour or to the rank itself. */
#include "start.h"

#define MOST ((size_t)100000)
/* The length of transfers that are longer than those that the headers copy themselves. */
#define LONG ((size_t)524288)
/* The length of half a segment. Each rank's left neighbour writes one half of its segment, and the
 * rank itself writes the other. */
#define HALF ((uintptr_t)1 << 20)
/* The number of bytes before and behind each target that must not change. */
#define GUARD 16

static const size_t sizes[] = {0,  1,  2,  3,   7,   8,    9,    15,   16,   17,
                               63, 64, 65, 511, 512, 4095, 4096, 4097, 65536, MOST};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static char *source, *back;

/* Returns the address at a peer to which this rank writes. */
static char *there(gex_Rank_t peer) { return base[peer] + (peer == me ? HALF : 0); }

/* Checks that the target holds this message between unchanged bytes. */
static void check_there(gex_Rank_t peer, char *at, size_t bytes, unsigned int message) {
  size_t i;
  CHECK_EQ(gex_RMA_GetBlocking(team, back, peer, at - GUARD, bytes + 2 * GUARD, 0), 0);
  check_filled(back + GUARD, bytes, message);
  for (i = 0; i < GUARD; ++i) CHECK(back[i] == 0 && back[GUARD + bytes + i] == 0);
}

static void clear(gex_Rank_t peer, char *at, size_t bytes) {
  memset(back, 0, bytes + 2 * GUARD);
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, at - GUARD, back, bytes + 2 * GUARD, 0), 0);
}

/* Puts `bytes` bytes to one place in each way. */
static void puts_of(gex_Rank_t peer, char *at, char *from, size_t bytes) {
  static unsigned int message;
  gex_Event_t root, leaf;
  clear(peer, at, bytes);

  fill(from, bytes, ++message);
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, at, from, bytes, 0), 0);
  memset(from, 0, bytes);
  check_there(peer, at, bytes, message);

  /* With GEX_EVENT_NOW, the source may be reused when the call returns. */
  fill(from, bytes, ++message);
  root = gex_RMA_PutNB(team, peer, at, from, bytes, GEX_EVENT_NOW, 0);
  memset(from, 0, bytes);
  gex_Event_Wait(root);
  check_there(peer, at, bytes, message);

  /* With GEX_EVENT_DEFER, the source may be reused when the operation completes. */
  fill(from, bytes, ++message);
  gex_Event_Wait(gex_RMA_PutNB(team, peer, at, from, bytes, GEX_EVENT_DEFER, 0));
  memset(from, 0, bytes);
  check_there(peer, at, bytes, message);

  /* With a leaf, local completion has an event of its own. */
  fill(from, bytes, ++message);
  leaf = GEX_EVENT_NO_OP;
  root = gex_RMA_PutNB(team, peer, at, from, bytes, &leaf, 0);
  gex_Event_Wait(leaf);
  memset(from, 0, bytes);
  gex_Event_Wait(root);
  check_there(peer, at, bytes, message);

  /* An immediate put either returns an event or has no effect. */
  fill(from, bytes, ++message);
  while ((root = gex_RMA_PutNB(team, peer, at, from, bytes, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE)) == GEX_EVENT_NO_OP)
    gasnet_AMPoll();
  gex_Event_Wait(root);
  check_there(peer, at, bytes, message);

  fill(from, bytes, ++message);
  CHECK_EQ(gex_RMA_PutNBI(team, peer, at, from, bytes, GEX_EVENT_NOW, 0), 0);
  memset(from, 0, bytes);
  gex_NBI_Wait(GEX_EC_PUT, 0);
  check_there(peer, at, bytes, message);

  fill(from, bytes, ++message);
  CHECK_EQ(gex_RMA_PutNBI(team, peer, at, from, bytes, GEX_EVENT_DEFER, 0), 0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
  memset(from, 0, bytes);
  check_there(peer, at, bytes, message);

  /* With GEX_EVENT_GROUP, the local completion of all implicit puts is waited for together. */
  fill(from, bytes, ++message);
  CHECK_EQ(gex_RMA_PutNBI(team, peer, at, from, bytes, GEX_EVENT_GROUP, 0), 0);
  gex_NBI_Wait(GEX_EC_LC, 0);
  memset(from, 0, bytes);
  gex_NBI_Wait(GEX_EC_PUT, 0);
  check_there(peer, at, bytes, message);

  fill(from, bytes, ++message);
  while (gex_RMA_PutNBI(team, peer, at, from, bytes, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE)) gasnet_AMPoll();
  while (gex_NBI_Test(GEX_EC_PUT, 0) != GASNET_OK) gasnet_AMPoll();
  check_there(peer, at, bytes, message);
}

/* Gets bytes that were put before, in each way. */
static void gets_of(gex_Rank_t peer, char *at, char *to, size_t bytes) {
  static unsigned int message = 50;
  gex_Event_t root;
  fill(source, bytes, ++message);
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, at, source, bytes, 0), 0);
#define BEFORE memset(to - GUARD, 0x55, bytes + 2 * GUARD)
#define AFTER                                                                      \
  do {                                                                             \
    size_t i_;                                                                     \
    check_filled(to, bytes, message);                                              \
    for (i_ = 0; i_ < GUARD; ++i_) CHECK(to[-1 - (int)i_] == 0x55 && to[bytes + i_] == 0x55); \
  } while (0)
  BEFORE;
  CHECK_EQ(gex_RMA_GetBlocking(team, to, peer, at, bytes, 0), 0);
  AFTER;
  BEFORE;
  gex_Event_Wait(gex_RMA_GetNB(team, to, peer, at, bytes, 0));
  AFTER;
  BEFORE;
  while ((root = gex_RMA_GetNB(team, to, peer, at, bytes, GEX_FLAG_IMMEDIATE)) == GEX_EVENT_NO_OP) gasnet_AMPoll();
  while (gex_Event_Test(root) != GASNET_OK) gasnet_AMPoll();
  AFTER;
  BEFORE;
  CHECK_EQ(gex_RMA_GetNBI(team, to, peer, at, bytes, 0), 0);
  gex_NBI_Wait(GEX_EC_GET, 0);
  AFTER;
  BEFORE;
  while (gex_RMA_GetNBI(team, to, peer, at, bytes, GEX_FLAG_IMMEDIATE)) gasnet_AMPoll();
  gex_NBI_Wait(GEX_EC_ALL, 0);
  AFTER;
}

static void blocks(gex_Rank_t peer) {
  size_t i;
  for (i = 0; i < SIZES; ++i) {
    const size_t shift = i % 5;
    puts_of(peer, there(peer) + GUARD, source, sizes[i]);
    puts_of(peer, there(peer) + GUARD + 1 + shift, source + 3, sizes[i]);
    gets_of(peer, there(peer) + GUARD + shift, back + GUARD + (shift ^ 1), sizes[i]);
  }
  /* The put reaches up to the last byte of the segment. */
  if (peer == me) {
    fill(source, 100, 77);
    CHECK_EQ(gex_RMA_PutBlocking(team, peer, base[peer] + 2 * HALF - 100, source, 100, 0), 0);
    CHECK_EQ(gex_RMA_GetBlocking(team, back, peer, base[peer] + 2 * HALF - 100, 100, 0), 0);
    check_filled(back, 100, 77);
  }
}

/* Tests lengths around the length from which on the library copies puts. */
static void long_ranges(gex_Rank_t peer) {
  size_t more;
  for (more = 0; more < 3; ++more) {
    const size_t bytes = LONG - 1 + more;
    char *const at = there(peer) + GUARD + more;
    clear(peer, at, bytes);
    fill(source + more, bytes, 90);
    CHECK_EQ(gex_RMA_PutBlocking(team, peer, at, source + more, bytes, 0), 0);
    check_there(peer, at, bytes, 90);
    fill(source, bytes, 91);
    CHECK_EQ(gex_RMA_PutNBI(team, peer, at, source, bytes, GEX_EVENT_NOW, 0), 0);
    gex_NBI_Wait(GEX_EC_PUT, 0);
    check_there(peer, at, bytes, 91);
  }
}

/* Transfers words of a constant length at each of the last possible places in the segment. */
#define WORDS_AT_THE_END(bytes) do { \
    char *const end = base[me] + 2 * HALF; \
    size_t before; \
    for (before = (bytes); before <= 20; ++before) { \
      fill(source, (bytes), (unsigned int)before); \
      memset(end - 20, 0, 20); \
      CHECK_EQ(gex_RMA_PutBlocking(team, me, end - before, source, (bytes), 0), 0); \
      memset(back, 0, (bytes)); \
      CHECK_EQ(gex_RMA_GetBlocking(team, back, me, end - before, (bytes), 0), 0); \
      check_filled(back, (bytes), (unsigned int)before); \
      check_filled(end - before, (bytes), (unsigned int)before); \
    } \
  } while (0)

static void words_at_the_end(void) {
  WORDS_AT_THE_END(1);
  WORDS_AT_THE_END(2);
  WORDS_AT_THE_END(4);
  WORDS_AT_THE_END(8);
}

/* Puts and gets between segments, so that neither side is private memory. */
static void between_segments(gex_Rank_t peer) {
  char *const own = base[me] + HALF;
  fill(own, 1000, 5);
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, base[peer], own, 1000, 0), 0);
  memset(own, 0, 1000);
  CHECK_EQ(gex_RMA_GetBlocking(team, own, peer, base[peer], 1000, 0), 0);
  check_filled(own, 1000, 5);
}

static void values(gex_Rank_t peer) {
  size_t bytes, shift;
  for (bytes = 1; bytes <= SIZEOF_GEX_RMA_VALUE_T; ++bytes)
    for (shift = 0; shift < 8; ++shift) {
      char *const at = there(peer) + GUARD + shift;
      const gex_RMA_Value_t value = 0x8899AABBCCDDEEFFU;
      const gex_RMA_Value_t kept = bytes == 8 ? value : value & (((gex_RMA_Value_t)1 << 8 * bytes) - 1);
      unsigned char around[8 + 2 * GUARD];
      int way;
      size_t i;
      for (way = 0; way < 3; ++way) {
        clear(peer, at, 8);
        if (way == 0) CHECK_EQ(gex_RMA_PutBlockingVal(team, peer, at, value, bytes, 0), 0);
        if (way == 1) gex_Event_Wait(gex_RMA_PutNBVal(team, peer, at, value, bytes, 0));
        if (way == 2) {
          CHECK_EQ(gex_RMA_PutNBIVal(team, peer, at, value, bytes, 0), 0);
          gex_NBI_Wait(GEX_EC_PUT, 0);
        }
        CHECK_EQ(gex_RMA_GetBlockingVal(team, peer, at, bytes, 0), kept);
        /* Only the low-order bytes may be written, in this processor's byte order. */
        CHECK_EQ(gex_RMA_GetBlocking(team, around, peer, at - GUARD, sizeof(around), 0), 0);
        for (i = 0; i < sizeof(around); ++i) {
          const int inside = i >= GUARD && i < GUARD + bytes;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
          const size_t place = i - GUARD;
#else
          const size_t place = bytes - 1 - (i - GUARD);
#endif
          CHECK_EQ(around[i], inside ? (value >> 8 * place) & 0xFF : 0);
        }
      }
    }
}

/* Transfers without bytes. Only their rank is checked. */
static void nothing(gex_Rank_t peer) {
  char byte = 0;
  void *const wild = (void *)(uintptr_t)0xFFFFFFFFFFFFFFF0U;
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, NULL, NULL, 0, 0), 0);
  CHECK_EQ(gex_RMA_PutBlocking(team, peer, wild, &byte, 0, 0), 0);
  CHECK_EQ(gex_RMA_GetBlocking(team, NULL, peer, NULL, 0, 0), 0);
  CHECK_EQ(gex_RMA_GetBlocking(team, &byte, peer, wild, 0, 0), 0);
  gex_Event_Wait(gex_RMA_PutNB(team, peer, NULL, NULL, 0, GEX_EVENT_DEFER, 0));
  gex_Event_Wait(gex_RMA_GetNB(team, NULL, peer, wild, 0, 0));
  CHECK_EQ(gex_RMA_PutNBI(team, peer, wild, NULL, 0, GEX_EVENT_NOW, 0), 0);
  CHECK_EQ(gex_RMA_GetNBI(team, NULL, peer, NULL, 0, 0), 0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

int main(int argc, char **argv) {
  start(&argc, &argv, NULL, 0, 2 * HALF);
  source = (char *)malloc(LONG + 64);
  back = (char *)malloc(LONG + 64 + 2 * GUARD);
  CHECK(source && back);
  blocks(neighbour(1));
  barrier();
  blocks(me);
  long_ranges(neighbour(1));
  barrier();
  words_at_the_end();
  barrier();
  values(neighbour(1));
  barrier();
  values(me);
  nothing(neighbour(1));
  nothing(me);
  barrier();
  between_segments(neighbour(1));
  free(source);
  free(back);
  finish();
  return 0;
}
