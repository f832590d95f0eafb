/* Events: one by one, in arrays of roots and leaves in any order, as implicit operations, and in
 * access regions. Testing an event must not poll, and waiting for it must. */
#include "start.h"

enum { ARRIVED = GEX_AM_INDEX_BASE, TAKE };

#define OPS 24
#define BYTES ((size_t)1000)
#define SEGMENT ((uintptr_t)1 << 17)

static volatile int arrived;
/* The number of messages that this rank must have received so far. Peers may be ahead and have sent
 * more. */
static int expected;
static char source[OPS][BYTES], back[OPS][BYTES];

static void arrive(gex_Token_t token) {
  (void)token;
  arrived++;
}

static void take(gex_Token_t token, void *at, size_t bytes) {
  (void)token;
  CHECK_EQ(bytes, BYTES);
  check_filled(at, bytes, 9);
  arrived++;
}

static char *place(gex_Rank_t peer, int op) { return base[peer] + (peer == me ? SEGMENT / 2 : 0) + op * BYTES; }

/* Starts puts with leaves. Entry order[i] of each array gets the root or the leaf of operation i.
 * */
static void start_puts(gex_Rank_t peer, unsigned int message, gex_Event_t *roots, gex_Event_t *leaves) {
  int i;
  for (i = 0; i < OPS; ++i) {
    fill(source[i], BYTES, message + i);
    leaves[i] = GEX_EVENT_NO_OP;
    roots[i] = gex_RMA_PutNB(team, peer, place(peer, i), source[i], BYTES, &leaves[i], 0);
    CHECK(leaves[i] != GEX_EVENT_NO_OP && roots[i] != GEX_EVENT_NO_OP);
    CHECK(gex_Event_QueryLeaf(roots[i], GEX_EC_LC) == leaves[i]);
  }
}

static void check_puts(gex_Rank_t peer, unsigned int message) {
  gex_Event_t gets[OPS];
  int i;
  for (i = 0; i < OPS; ++i) gets[i] = gex_RMA_GetNB(team, back[i], peer, place(peer, i), BYTES, 0);
  gex_Event_WaitAll(gets, OPS, 0);
  for (i = 0; i < OPS; ++i) {
    CHECK(gets[i] == GEX_EVENT_INVALID);
    check_filled(back[i], BYTES, message + i);
  }
}

static void check_all_invalid(const gex_Event_t *events, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) CHECK(events[i] == GEX_EVENT_INVALID);
}

/* Fills an array with roots, leaves and some invalid events. The leaves come first, the roots come
 * first, or the two alternate. */
static size_t mix(gex_Event_t *array, int order, const gex_Event_t *roots, const gex_Event_t *leaves) {
  size_t count = 0;
  int i;
  for (i = 0; i < OPS; ++i) {
    const int back_to_front = OPS - 1 - i;
    switch (order) {
      case 0:
        array[i] = leaves[i];
        array[OPS + i] = roots[back_to_front];
        break;
      case 1:
        array[i] = roots[i];
        array[OPS + i] = leaves[i];
        break;
      default:
        array[2 * i] = i % 2 ? roots[i] : leaves[i];
        array[2 * i + 1] = i % 2 ? leaves[i] : roots[i];
    }
    count += 2;
  }
  array[count++] = GEX_EVENT_INVALID;
  return count;
}

static void arrays(gex_Rank_t peer) {
  gex_Event_t roots[OPS], leaves[OPS], array[2 * OPS + 1];
  int order, way;
  size_t count, i;
  unsigned int message = 0;
  for (order = 0; order < 3; ++order)
    for (way = 0; way < 5; ++way) {
      start_puts(peer, ++message, roots, leaves);
      count = mix(array, order, roots, leaves);
      switch (way) {
        case 0: gex_Event_WaitAll(array, count, 0); break;
        case 1:
          while (gex_Event_TestAll(array, count, 0) != GASNET_OK) gasnet_AMPoll();
          break;
        case 2:
          for (;;) {
            size_t left = 0;
            gex_Event_WaitSome(array, count, 0);
            for (i = 0; i < count; ++i) left += array[i] != GEX_EVENT_INVALID;
            if (!left) break;
          }
          break;
        case 3:
          for (;;) {
            size_t left = 0, more = 0;
            int some;
            for (i = 0; i < count; ++i) left += array[i] != GEX_EVENT_INVALID;
            if (!left) break;
            some = gex_Event_TestSome(array, count, 0);
            CHECK(some == GASNET_OK || some == GASNET_ERR_NOT_READY);
            for (i = 0; i < count; ++i) more += array[i] != GEX_EVENT_INVALID;
            /* Success means that at least one event had completed and is GEX_EVENT_INVALID now. */
            CHECK_EQ(some == GASNET_OK, more < left);
            gasnet_AMPoll();
          }
          break;
        default:
          /* Completes only the leaves, with several calls on each, and then the roots. */
          for (i = 0; i < OPS; ++i) {
            gex_Event_Wait(leaves[i]);
            CHECK_EQ(gex_Event_Test(leaves[i]), GASNET_OK);
            gex_Event_Wait(leaves[i]);
          }
          gex_Event_WaitAll(roots, OPS, 0);
          check_all_invalid(roots, OPS);
      }
      if (way < 4) check_all_invalid(array, count);
      check_puts(peer, message);
    }
  /* Waiting for invalid events must return at once. */
  for (i = 0; i < OPS; ++i) array[i] = GEX_EVENT_INVALID;
  gex_Event_WaitAll(array, OPS, 0);
  gex_Event_WaitSome(array, OPS, 0);
  CHECK_EQ(gex_Event_TestAll(array, OPS, 0), GASNET_OK);
  CHECK_EQ(gex_Event_TestSome(array, OPS, 0), GASNET_OK);
  CHECK_EQ(gex_Event_TestSome(NULL, 0, 0), GASNET_OK);
  CHECK_EQ(gex_Event_TestAll(NULL, 0, 0), GASNET_OK);
  gex_Event_WaitSome(NULL, 0, 0);
  gex_Event_WaitAll(NULL, 0, 0);
  gex_Event_Wait(GEX_EVENT_INVALID);
  CHECK_EQ(gex_Event_Test(GEX_EVENT_INVALID), GASNET_OK);
}

/* Starts many operations at a time and completes them in another order. */
static void many(gex_Rank_t peer) {
  gex_Event_t roots[OPS], leaves[OPS];
  int i;
  start_puts(peer, 60, roots, leaves);
  for (i = OPS - 1; i >= 0; i -= 2) gex_Event_Wait(roots[i]);
  for (i = 0; i < OPS; i += 2)
    while (gex_Event_Test(roots[i]) != GASNET_OK) gasnet_AMPoll();
  check_puts(peer, 60);
}

/* The class of an implicit operation determines which waits cover it. */
static void implicit(gex_Rank_t peer) {
  int i;
  CHECK_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
  for (i = 0; i < OPS; ++i) {
    fill(source[i], BYTES, 100 + i);
    CHECK_EQ(gex_RMA_PutNBI(team, peer, place(peer, i), source[i], BYTES, GEX_EVENT_DEFER, 0), 0);
  }
  /* No get is in flight, so this must succeed even if puts are in flight. */
  CHECK_EQ(gex_NBI_Test(GEX_EC_GET, 0), GASNET_OK);
  gex_NBI_Wait(GEX_EC_PUT, 0);
  CHECK_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
  for (i = 0; i < OPS; ++i) CHECK_EQ(gex_RMA_GetNBI(team, back[i], peer, place(peer, i), BYTES, 0), 0);
  CHECK_EQ(gex_NBI_Test(GEX_EC_PUT | GEX_EC_LC | GEX_EC_AM | GEX_EC_RMW, 0), GASNET_OK);
  while (gex_NBI_Test(GEX_EC_GET, 0) != GASNET_OK) gasnet_AMPoll();
  for (i = 0; i < OPS; ++i) check_filled(back[i], BYTES, 100 + i);
  gex_NBI_Wait(GEX_EC_ALL, 0);
  gex_NBI_Wait(GEX_EC_RMW, 0);
}

/* The operations of an access region must belong to the region's event and must not be implicit
 * operations. */
static void regions(gex_Rank_t peer) {
  gex_Event_t event, other;
  int i;
  gex_NBI_BeginAccessRegion(0);
  event = gex_NBI_EndAccessRegion(0);
  gex_Event_Wait(event);

  gex_NBI_BeginAccessRegion(0);
  for (i = 0; i < OPS; ++i) {
    fill(source[i], BYTES, 200 + i);
    CHECK_EQ(gex_RMA_PutNBI(team, peer, place(peer, i), source[i], BYTES, GEX_EVENT_DEFER, 0), 0);
  }
  /* An operation that has an event of its own is not part of the region. */
  other = gex_RMA_GetNB(team, back[0], peer, place(peer, OPS), BYTES, 0);
  event = gex_NBI_EndAccessRegion(0);
  CHECK_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
  gex_Event_Wait(gex_Event_QueryLeaf(event, GEX_EC_PUT));
  gex_Event_Wait(gex_Event_QueryLeaf(event, GEX_EC_LC));
  gex_Event_Wait(event);
  gex_Event_Wait(other);
  check_puts(peer, 200);

  fill(source[0], BYTES, 9);
  gex_NBI_BeginAccessRegion(0);
  for (i = 0; i < OPS; ++i) CHECK_EQ(gex_RMA_GetNBI(team, back[i], peer, place(peer, i), BYTES, 0), 0);
  CHECK_EQ(gex_AM_RequestMedium0(team, peer, TAKE, source[0], BYTES, GEX_EVENT_GROUP, 0), 0);
  CHECK_EQ(gex_RMA_PutNBIVal(team, peer, place(peer, OPS), 5, 4, 0), 0);
  event = gex_NBI_EndAccessRegion(0);
  /* A region and implicit operations are in flight at the same time. */
  CHECK_EQ(gex_RMA_GetNBI(team, source[1], peer, place(peer, 1), BYTES, 0), 0);
  gex_Event_Wait(gex_Event_QueryLeaf(event, GEX_EC_AM));
  while (gex_Event_Test(event) != GASNET_OK) gasnet_AMPoll();
  for (i = 0; i < OPS; ++i) check_filled(back[i], BYTES, 200 + i);
  gex_NBI_Wait(GEX_EC_GET, 0);
  check_filled(source[1], BYTES, 201);
  /* The message's sender is the left neighbour, or this rank if it is alone. */
  expected++;
  GASNET_BLOCKUNTIL(arrived == expected);
}

/* A put shows that a message has arrived, but testing an event must not handle the message. */
static void tests_do_not_poll(void) {
  volatile int *const flag = (volatile int *)(void *)base[me];
  volatile int *const ready = flag + 1;
  void *mapped = NULL;
  const gex_Rank_t right = neighbour(1), left = neighbour(size - 1);
  gex_Event_t events[1] = {GEX_EVENT_INVALID};
  const int before = arrived;
  const int one = 1;
  int i;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, right, NULL, &mapped, NULL, 0));
  if (!mapped || size == 1) return;
  *flag = 0;
  *ready = 0;
  barrier();
  /* A rank in the barrier polls. The message must therefore be sent only after its target has
   * signalled that it has left the barrier. */
  gex_RMA_PutBlocking(team, left, base[left] + sizeof(one), &one, sizeof(one), 0);
  while (!*ready) {
  }
  gex_AM_RequestShort0(team, right, ARRIVED, 0);
  gex_RMA_PutBlocking(team, right, base[right], &one, sizeof(one), 0);
  while (!*flag) {
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  for (i = 0; i < 100; ++i) {
    CHECK_EQ(gex_Event_Test(events[0]), GASNET_OK);
    CHECK_EQ(gex_Event_TestSome(events, 1, 0), GASNET_OK);
    CHECK_EQ(gex_Event_TestAll(events, 1, 0), GASNET_OK);
    CHECK_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
  }
  CHECK_EQ(arrived, before);
  GASNET_BLOCKUNTIL(arrived == before + 1);
  barrier();
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {
    {ARRIVED, (gex_AM_Fn_t)arrive, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "arrived"},
    {TAKE, (gex_AM_Fn_t)take, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0, NULL, "take"}};
  gex_Rank_t peers[2];
  int i;
  start(&argc, &argv, handlers, 2, SEGMENT);
  peers[0] = neighbour(1);
  peers[1] = me;
  for (i = 0; i < 2; ++i) {
    arrays(peers[i]);
    many(peers[i]);
    implicit(peers[i]);
    barrier();
    regions(peers[i]);
    barrier();
  }
  tests_do_not_poll();
  finish();
  return 0;
}
