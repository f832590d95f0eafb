/* GASNet's variables that change a job's properties. GASNET_SUPERNODE_MAXSIZE limits the number of
 * ranks in a neighbourhood. All operations must also work beyond a neighbourhood.
 * GASNET_MAX_SEGSIZE limits the largest segment, which is printed for the Rust test. The program
 * may also set that limit itself, as a text (TEST_MAX_SEGSIZE) or as a number. */
#include <inttypes.h>
#include <stdlib.h>

#include <gasnet.h>

#include "start.h"

enum { ADD = GEX_AM_INDEX_BASE, HANDLERS };

#define SEGMENT ((uintptr_t)1 << 16)

static volatile unsigned int added;

static void add(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t from) {
  (void)token;
  check_filled(at, bytes, (unsigned int)from);
  added++;
}

/* Checks that each neighbourhood has `most` consecutive ranks. */
static void neighbourhoods(gex_Rank_t most) {
  const gex_Rank_t first = me - me % most, end = first + most < size ? first + most : size;
  gex_RankInfo_t *list;
  gex_Rank_t count, mine, sets, set, hosts, host, rank;
  gasnet_nodeinfo_t nodes[MOST_RANKS];
  gex_System_QueryNbrhdInfo(&list, &count, &mine);
  CHECK_EQ(count, end - first);
  CHECK_EQ(mine, me - first);
  for (rank = first; rank < end; ++rank) CHECK_EQ(list[rank - first].gex_jobrank, rank);
  gex_System_QueryMyPosition(&sets, &set, &hosts, &host);
  CHECK_EQ(sets, (size + most - 1) / most);
  CHECK_EQ(set, me / most);
  CHECK_EQ(hosts, 1);
  CHECK_EQ(host, 0);
  CHECK_EQ(gasnet_getNodeInfo(nodes, (int)size), GASNET_OK);
  for (rank = 0; rank < size; ++rank) {
    void *local = NULL;
    CHECK_EQ(nodes[rank].host, 0);
    CHECK_EQ(nodes[rank].supernode, rank / most);
    CHECK_EQ(gex_Segment_QueryBound(team, rank, NULL, &local, NULL), 0);
    CHECK_EQ(local != NULL, rank >= first && rank < end);
    if (local) CHECK_EQ((uintptr_t)local, (uintptr_t)base[rank] + nodes[rank].offset);
    else CHECK_EQ(nodes[rank].offset, 0);
  }
}

/* Puts to all ranks, gets from them, and sends messages to them. */
static void everywhere(void) {
  unsigned char out[64], in[64];
  gex_Rank_t rank;
  for (rank = 0; rank < size; ++rank) {
    gex_Event_t event;
    fill(out, sizeof(out), me);
    gex_RMA_PutBlocking(team, rank, base[rank] + 64 * me, out, sizeof(out), 0);
    memset(in, 0, sizeof(in));
    gex_RMA_GetBlocking(team, in, rank, base[rank] + 64 * me, sizeof(in), 0);
    check_filled(in, sizeof(in), me);
    event = gex_RMA_PutNB(team, rank, base[rank] + 64 * me, out, sizeof(out), GEX_EVENT_DEFER, 0);
    gex_Event_Wait(event);
    gex_RMA_GetNBI(team, in, rank, base[rank] + 64 * me, sizeof(in), 0);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    check_filled(in, sizeof(in), me);
    gex_AM_RequestLong1(team, rank, ADD, out, sizeof(out), base[rank] + 64 * (size + me), GEX_EVENT_NOW, 0,
                        (gex_AM_Arg_t)me);
  }
  GASNET_BLOCKUNTIL(added == size);
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {{ADD, (gex_AM_Fn_t)add, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 1, NULL, "add"}};
  const char *most;
  if (getenv("TEST_MAX_SEGSIZE")) gasnet_max_segsize_str = getenv("TEST_MAX_SEGSIZE");
  if (getenv("TEST_MAX_SEGSIZE_NUMBER")) gasnet_max_segsize = (uint64_t)atoll(getenv("TEST_MAX_SEGSIZE_NUMBER"));
  start(&argc, &argv, handlers, HANDLERS - GEX_AM_INDEX_BASE, SEGMENT);
  if (me == 0) printf("largest segment %" PRIuPTR "\n", gasnet_getMaxLocalSegmentSize());
  most = gasnet_getenv("GASNET_SUPERNODE_MAXSIZE");
  if (gasnet_getenv("CONDUIT_WINDOWS")) neighbourhoods(1);
  else neighbourhoods(most && atoi(most) > 0 ? (gex_Rank_t)atoi(most) : size);
  everywhere();
  finish();
  return 0;
}
