/* Diagnostics of flow control: how many credits a sender has, and how that number changes while the
 * sender's peer doesn't handle messages. */
#include "start.h"

enum { COUNT = GEX_AM_INDEX_BASE };

static volatile unsigned int counted;

static void count(gex_Token_t token) {
  (void)token;
  counted++;
}

/* The even rank of a pair sends without waiting until it has no more credits. Meanwhile the odd
 * rank only watches its memory and doesn't poll. */
static void run_out(void) {
  volatile int *const flag = (volatile int *)(void *)base[me];
  const gex_Rank_t peer = me ^ 1;
  const uint32_t before = gasnet_send_credits(peer);
  const uint64_t stalls = gasnet_credit_stalls(peer);
  unsigned int sent = 0;
  const int one = 1;
  if (me % 2 == 0) {
    while (gex_AM_RequestShort0(team, peer, COUNT, GEX_FLAG_IMMEDIATE) == 0) {
      sent++;
      CHECK(sent < 1000000);
    }
    CHECK(sent >= 1);
    CHECK(gasnet_send_credits(peer) < before);
    gex_RMA_PutBlocking(team, peer, base[peer], &one, sizeof(one), 0);
    /* The peer polls from here on. */
    CHECK_EQ(gex_AM_RequestShort0(team, peer, COUNT, 0), 0);
    CHECK(gasnet_credit_stalls(peer) >= stalls);
    gex_RMA_PutBlocking(team, peer, base[peer] + 64, &sent, sizeof(sent), 0);
  } else {
    while (!*flag) {
    }
    GASNET_BLOCKUNTIL(*(volatile unsigned int *)(void *)(base[me] + 64) > 0);
    GASNET_BLOCKUNTIL(counted > *(volatile unsigned int *)(void *)(base[me] + 64));
  }
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {{COUNT, (gex_AM_Fn_t)count, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "count"}};
  gex_Rank_t rank;
  void *mapped = NULL;
  start(&argc, &argv, handlers, 1, GASNET_PAGESIZE);
  memset(base[me], 0, GASNET_PAGESIZE);
  for (rank = 0; rank < size; ++rank) {
    CHECK(gasnet_send_credits(rank) > 0);
    CHECK_EQ(gasnet_credit_stalls(rank), 0);
    CHECK_EQ(gasnet_revoked_credits(rank), 0);
  }
  CHECK(gasnet_banked_credits() < 1000000);
  barrier();
  if (size % 2 == 0) {
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, me ^ 1, NULL, &mapped, NULL, 0));
    if (mapped) run_out();
  }
  finish();
  return 0;
}
