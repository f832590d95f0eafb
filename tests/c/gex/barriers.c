/* Barriers: GASNet-1's barrier in two phases with its ids, and several barriers of the team at a
 * time. */
#include "start.h"

enum { GO = GEX_AM_INDEX_BASE };
#define ANONYMOUS GASNET_BARRIERFLAG_ANONYMOUS

static volatile int told;

static void go(gex_Token_t token) {
  (void)token;
  told++;
}

/* Checks that the last barrier's result is this id. */
static void check_result(int id) {
  int named = -1;
  CHECK_EQ(gasnet_barrier_result(&named), 0);
  CHECK_EQ(named, id);
}

static void check_no_result(void) {
  int named = -1;
  CHECK(gasnet_barrier_result(&named) != 0);
}

static int wait_by_try(int id, int flags) {
  int result;
  while ((result = gasnet_barrier_try(id, flags)) == GASNET_ERR_NOT_READY) {
  }
  return result;
}

static void ids(void) {
  const int values[] = {0, 1, -1, 42, INT_MAX, INT_MIN};
  size_t i;
  for (i = 0; i < sizeof(values) / sizeof(values[0]); ++i) {
    const int id = values[i];
    gasnet_barrier_notify(id, 0);
    CHECK_EQ(gasnet_barrier_wait(id, 0), GASNET_OK);
    check_result(id);
    gasnet_barrier_notify(id, 0);
    CHECK_EQ(wait_by_try(id, 0), GASNET_OK);
    check_result(id);
    CHECK_EQ(gasnet_barrier(id, 0), GASNET_OK);
    check_result(id);
    /* The id is ignored, because the barrier is anonymous. */
    gasnet_barrier_notify(id + (int)(me % 2), ANONYMOUS);
    CHECK_EQ(gasnet_barrier_wait(-id / 2, ANONYMOUS), GASNET_OK);
    check_no_result();
  }
  CHECK_EQ(gasnet_barrier(0, ANONYMOUS), GASNET_OK);
  check_no_result();
  CHECK_EQ(gasnet_barrier((int)me, GASNET_BARRIERFLAG_UNNAMED), GASNET_OK);
  gasnet_barrier_notify((int)me, GASNET_BARRIERFLAG_UNNAMED);
  CHECK_EQ(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_UNNAMED), GASNET_OK);
  /* A rank may wait anonymously for a barrier that it notified with a name, and the other way
   * round. */
  gasnet_barrier_notify(7, 0);
  CHECK_EQ(gasnet_barrier_wait(0, ANONYMOUS), GASNET_OK);
  check_result(7);
  gasnet_barrier_notify(0, ANONYMOUS);
  CHECK_EQ(gasnet_barrier_wait(8, 0), GASNET_OK);
  /* Some ranks take part with a name and others anonymously. */
  gasnet_barrier_notify(9, me % 2 ? ANONYMOUS : 0);
  CHECK_EQ(gasnet_barrier_wait(9, me % 2 ? ANONYMOUS : 0), GASNET_OK);
  check_result(9);
  gasnet_barrier_notify(10, me == size - 1 ? 0 : ANONYMOUS);
  CHECK_EQ(gasnet_barrier_wait(10, me % 2 ? 0 : ANONYMOUS), GASNET_OK);
  check_result(10);
}

/* If one rank passes a different id, all ranks must get a mismatch, and the next barrier must work.
 * */
static void mismatches(void) {
  gex_Rank_t odd_one;
  for (odd_one = 0; odd_one < size; ++odd_one) {
    gasnet_barrier_notify(5, me == odd_one ? GASNET_BARRIERFLAG_MISMATCH : 0);
    CHECK_EQ(gasnet_barrier_wait(5, 0), GASNET_ERR_BARRIER_MISMATCH);
    gasnet_barrier_notify(0, me == odd_one ? GASNET_BARRIERFLAG_MISMATCH : ANONYMOUS);
    CHECK_EQ(wait_by_try(0, me == odd_one ? GASNET_BARRIERFLAG_MISMATCH : ANONYMOUS), GASNET_ERR_BARRIER_MISMATCH);
    if (size > 1) {
      gasnet_barrier_notify(me == odd_one, 0);
      CHECK_EQ(gasnet_barrier_wait(me == odd_one, 0), GASNET_ERR_BARRIER_MISMATCH);
      CHECK_EQ(gasnet_barrier(me == odd_one ? 77 : 78, 0), GASNET_ERR_BARRIER_MISMATCH);
    }
    CHECK_EQ(gasnet_barrier(6, 0), GASNET_OK);
    check_result(6);
  }
}

/* No rank may leave a barrier before all have arrived. Rank 1 arrives only once rank 0 has sent it
 * a message. */
static void no_earlier(void) {
  int i;
  if (size > 1) {
    if (me == 0) {
      gasnet_barrier_notify(1, 0);
      for (i = 0; i < 50; ++i) CHECK_EQ(gasnet_barrier_try(1, 0), GASNET_ERR_NOT_READY);
      gex_AM_RequestShort0(team, 1, GO, 0);
    } else if (me == 1) {
      GASNET_BLOCKUNTIL(told == 1);
      gasnet_barrier_notify(1, 0);
    } else gasnet_barrier_notify(1, 0);
    CHECK_EQ(gasnet_barrier_wait(1, 0), GASNET_OK);
  }
  barrier();
  if (size > 1) {
    gex_Event_t event;
    if (me == 1) GASNET_BLOCKUNTIL(told == 2);
    event = gex_Coll_BarrierNB(team, 0);
    if (me == 0) {
      for (i = 0; i < 50; ++i) {
        CHECK_EQ(gex_Event_Test(event), GASNET_ERR_NOT_READY);
        gasnet_AMPoll();
      }
      gex_AM_RequestShort0(team, 1, GO, 0);
    }
    gex_Event_Wait(event);
  }
}

/* Bytes that are put before a notify must be visible after the wait. */
static void memory(void) {
  gex_Rank_t const right = neighbour(1), left = neighbour(size - 1);
  int *const mine = (int *)(void *)base[me];
  int round;
  for (round = 1; round <= 20; ++round) {
    const int number = round * 1000 + (int)me;
    gex_RMA_PutBlocking(team, right, base[right], &number, sizeof(number), 0);
    switch (round % 4) {
      case 0: CHECK_EQ(gasnet_barrier(round, 0), GASNET_OK); break;
      case 1: barrier(); break;
      case 2: gex_Coll_BarrierBlocking(team, 0); break;
      default:
        gasnet_barrier_notify(round, 0);
        CHECK_EQ(wait_by_try(round, 0), GASNET_OK);
    }
    CHECK_EQ(*mine, round * 1000 + (int)left);
    barrier();
  }
}

/* Runs several barriers of the team at once and ends them in any order. A barrier of GASNet-1 runs
 * meanwhile. */
static void several(void) {
  gex_Event_t events[8];
  int round, i;
  for (round = 0; round < 10; ++round) {
    for (i = 0; i < 8; ++i) {
      events[i] = gex_Coll_BarrierNB(team, 0);
      if (i == 3) gasnet_barrier_notify(round, 0);
    }
    switch (round % 4) {
      case 0:
        for (i = 7; i >= 0; --i) gex_Event_Wait(events[i]);
        break;
      case 1: gex_Event_WaitAll(events, 8, 0); break;
      case 2:
        for (i = 0; i < 8; ++i)
          while (gex_Event_Test(events[i]) != GASNET_OK) gasnet_AMPoll();
        break;
      default:
        while (gex_Event_TestAll(events, 8, 0) != GASNET_OK) gasnet_AMPoll();
    }
    CHECK_EQ(gasnet_barrier_wait(round, 0), GASNET_OK);
  }
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {{GO, (gex_AM_Fn_t)go, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "go"}};
  start(&argc, &argv, handlers, 1, GASNET_PAGESIZE);
  ids();
  mismatches();
  no_earlier();
  memory();
  several();
  finish();
  return 0;
}
