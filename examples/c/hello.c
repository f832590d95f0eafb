/* Each rank writes its number into its right neighbour's segment, and greets it. */
#include <gasnetex.h>
#include <stdio.h>

static volatile gex_AM_Arg_t greeter = -1;

static void hello(gex_Token_t token, gex_AM_Arg_t from) {
  (void)token;
  greeter = from;
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_TM_t team;
  gex_Segment_t segment;
  gex_AM_Entry_t handler = {0, (gex_AM_Fn_t)hello, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 1, NULL, "hello"};

  gex_Client_Init(&client, &ep, &team, "RING", &argc, &argv, 0);
  gex_EP_RegisterHandlers(ep, &handler, 1);
  gex_Segment_Attach(&segment, team, GASNET_PAGESIZE);

  gex_Rank_t me = gex_TM_QueryRank(team), size = gex_TM_QuerySize(team), right = (me + 1) % size;
  void *there;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, right, &there, NULL, NULL, 0));
  gex_RMA_PutBlocking(team, right, there, &me, sizeof me, 0);
  gex_AM_RequestShort1(team, right, handler.gex_index, 0, me);
  GASNET_BLOCKUNTIL(greeter >= 0);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); /* all puts have arrived */

  printf("rank %u of %u: rank %u wrote, rank %d greeted\n", me, size, *(gex_Rank_t *)gex_Segment_QueryAddr(segment), greeter);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); /* an exit ends all ranks, so wait until all have printed */
  gasnet_exit(0);
}
