/* Each rank puts its number into its right neighbour's segment and says hello to it. */
#include <gasnetex.h>
#include <stdio.h>

enum { HELLO = GEX_AM_INDEX_BASE };
static volatile int greeted;

static void hello(gex_Token_t token, gex_AM_Arg_t number) {
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  greeted = number == (gex_AM_Arg_t)info.gex_srcrank;
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_TM_t team;
  gex_Segment_t segment;
  gex_AM_Entry_t handlers[] = {{HELLO, (gex_AM_Fn_t)hello, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 1, NULL, "hello"}};

  gex_Client_Init(&client, &ep, &team, "RING", &argc, &argv, 0);
  gex_EP_RegisterHandlers(ep, handlers, 1);
  gex_Segment_Attach(&segment, team, GASNET_PAGESIZE);

  gex_Rank_t me = gex_TM_QueryRank(team), size = gex_TM_QuerySize(team), right = (me + 1) % size;
  void *there;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, right, &there, NULL, NULL, 0));
  gex_RMA_PutBlocking(team, right, there, &me, sizeof me, 0);
  gex_AM_RequestShort1(team, right, HELLO, 0, (gex_AM_Arg_t)me);
  GASNET_BLOCKUNTIL(greeted);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); /* from here on all puts have arrived */

  gex_Rank_t left = *(gex_Rank_t *)gex_Segment_QueryAddr(segment);
  printf("rank %u of %u: my left neighbour is rank %u\n", (unsigned)me, (unsigned)size, (unsigned)left);
  gasnet_exit(left == (me + size - 1) % size ? 0 : 1);
}
