/* A block of numbers travels once around the ring of ranks. */
#include <gasnetex.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 512 };
static volatile char *arrived; /* by round */

static void took(gex_Token_t token, void *block, size_t bytes, gex_AM_Arg_t round) {
  (void)token, (void)block, (void)bytes;
  arrived[round] = 1;
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_TM_t team;
  gex_Segment_t segment;
  gex_AM_Entry_t handler = {0, (gex_AM_Fn_t)took, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 1, NULL, "took"};

  gex_Client_Init(&client, &ep, &team, "RING", &argc, &argv, 0);
  gex_Rank_t me = gex_TM_QueryRank(team), size = gex_TM_QuerySize(team), right = (me + 1) % size;
  arrived = calloc(size, 1);
  gex_EP_RegisterHandlers(ep, &handler, 1);

  /* A slot for each round, so that no block overwrites one that has not been read. */
  size_t slot = NUMBERS * sizeof(uint64_t), bytes = size * slot;
  gex_Segment_Attach(&segment, team, (bytes + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE);
  char *own = gex_Segment_QueryAddr(segment);
  void *there;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, right, &there, NULL, NULL, 0));

  uint64_t first[NUMBERS], *block = first;
  for (int i = 0; i < NUMBERS; i++) first[i] = me;
  for (gex_Rank_t round = 0; round < size; round++) {
    gex_AM_RequestLong1(team, right, handler.gex_index, block, slot, (char *)there + round * slot, GEX_EVENT_NOW, 0, round);
    GASNET_BLOCKUNTIL(arrived[round]);
    block = (uint64_t *)(own + round * slot);
  }
  for (int i = 0; i < NUMBERS; i++)
    if (block[i] != me) gasnet_exit(1);
  printf("rank %u: the block came home in round %u\n", me, size);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); /* an exit ends the other ranks too */
  gasnet_exit(0);
}
