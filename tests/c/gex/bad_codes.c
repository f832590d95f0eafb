/* Makes calls with bad input for which GASNet has an error code. The call must return that code,
 * and the job must continue. */
#include "legacy_start.h"

/* The destination of calls that fail. It must not change. */
static char target[64];
static gex_Client_t client;
static gex_EP_t ep;
static gex_TM_t team;
static gex_Segment_t segment;
static volatile int arrived;

static void arrive(gasnet_token_t token) {
  (void)token;
  arrived++;
}

static void check_token(gasnet_token_t token) {
  CHECK_EQ(gasnet_AMGetMsgSource(token, NULL), GASNET_ERR_BAD_ARG);
  /* These replies have too many arguments, a payload that is too long, or a place outside the
   * segment. They are refused, and a valid reply is still possible afterwards. */
  CHECK_EQ(gasnet_AMReplyShort(token, 200, 17), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyShort(token, 200, -1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyMedium(token, 200, NULL, 0, 17), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyLong(token, 200, NULL, 0, NULL, 99), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyMedium0(token, 200, target, (size_t)1 << 40), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyMedium0(token, 200, target, SIZE_MAX), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyMedium0(token, 200, NULL, 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyLong0(token, 200, target, 8, target), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyLong0(token, 200, target, SIZE_MAX, at(0, 0)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyLong0(token, 200, NULL, 8, at(0, 0)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMReplyShort0(token, 200), GASNET_OK);
}

static void before_init(void) {
  gasnet_seginfo_t info;
  gasnet_nodeinfo_t node;
  CHECK_EQ(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0), GASNET_ERR_NOT_INIT);
  CHECK_EQ(gasnet_getSegmentInfo(&info, 1), GASNET_ERR_NOT_INIT);
  CHECK_EQ(gasnet_getNodeInfo(&node, 1), GASNET_ERR_NOT_INIT);
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, NULL, NULL, NULL, 0), GASNET_ERR_BAD_ARG);
}

static void before_attach(void) {
  gasnet_seginfo_t info;
  CHECK_EQ(gasnet_init(NULL, NULL), GASNET_ERR_NOT_INIT);
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "TWICE", NULL, NULL, 0), GASNET_ERR_NOT_INIT);
  CHECK_EQ(gasnet_getSegmentInfo(&info, 1), GASNET_ERR_NOT_INIT);
}

static void registrations(void) {
  gex_AM_Entry_t entry[2];
  memset(entry, 0, sizeof(entry));
  entry[0].gex_fnptr = (gex_AM_Fn_t)arrive;
  entry[0].gex_flags = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, NULL, 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, SIZE_MAX), GASNET_ERR_BAD_ARG);
  entry[0].gex_index = 1;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_ERR_BAD_ARG);
  entry[0].gex_index = GEX_AM_INDEX_BASE - 1;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_ERR_BAD_ARG);
  entry[0].gex_index = 0;
  entry[0].gex_nargs = 17;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_ERR_BAD_ARG);
  entry[0].gex_nargs = 256;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_ERR_BAD_ARG);
  entry[0].gex_nargs = 0;
  entry[0].gex_fnptr = NULL;
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_ERR_BAD_ARG);
  entry[0].gex_fnptr = (gex_AM_Fn_t)arrive;
  /* The table has one index twice, so no entry of it is registered. */
  entry[0].gex_index = 222;
  entry[1] = entry[0];
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 2), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_OK);
  CHECK_EQ(gex_EP_RegisterHandlers(ep, entry, 1), GASNET_ERR_BAD_ARG);
}

static void attaching(void) {
  gasnet_handlerentry_t table[] = {{128, (gex_AM_Fn_t)arrive}, {200, (gex_AM_Fn_t)arrive},
                                   {0, (gex_AM_Fn_t)check_token}};
  gasnet_handlerentry_t bad = {5, (gex_AM_Fn_t)arrive};
  CHECK_EQ(gex_Segment_Attach(&segment, team, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_Segment_Attach(&segment, team, GASNET_PAGESIZE + 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_attach(NULL, 0, GASNET_PAGESIZE / 2, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_attach(NULL, 1, GASNET_PAGESIZE, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_attach(table, -1, GASNET_PAGESIZE, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_attach(table, 1000, GASNET_PAGESIZE, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_attach(&bad, 1, GASNET_PAGESIZE, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_attach(table, 3, 4 * GASNET_PAGESIZE, 0), GASNET_OK);
  CHECK_EQ(table[2].index, 255);
  CHECK_EQ(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0), GASNET_ERR_NOT_INIT);
  CHECK_EQ(gex_Segment_Attach(&segment, team, GASNET_PAGESIZE), GASNET_ERR_NOT_INIT);
  CHECK(segment == GEX_SEGMENT_INVALID);
}

static void queries(void) {
  gasnet_seginfo_t info;
  gasnet_nodeinfo_t node;
  int id;
  unsigned int threads;
  const gex_ProgressThreadInfo_t *thread;
  void *owner = &owner;
  CHECK_EQ(gasnet_getSegmentInfo(NULL, 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_getSegmentInfo(&info, -1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_getSegmentInfo(&info, 0), GASNET_OK);
  CHECK_EQ(gasnet_getNodeInfo(NULL, 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_getNodeInfo(&node, -1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_getNodeInfo(&node, INT_MIN), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_System_QueryProgressThreads(client, &threads, &thread, 0), GASNET_ERR_RESOURCE);
  CHECK_EQ(gasnet_set_waitmode(-1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_set_waitmode(3), GASNET_ERR_BAD_ARG);
  CHECK(gex_Segment_QueryBound(team, nodes, &owner, NULL, NULL) != 0);
  CHECK(gex_Segment_QueryBound(team, GEX_RANK_INVALID, &owner, NULL, NULL) != 0);
  CHECK(owner == &owner);
  CHECK(gasnet_barrier_result(&id) != 0);
  CHECK_EQ(gasnet_barrier(3, 0), GASNET_OK);
  CHECK_EQ(gasnet_barrier_result(NULL), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_barrier_result(&id), 0);
  CHECK_EQ(id, 3);
}

/* Makes invalid requests by GASNet-1. Each returns its error, and no message arrives. */
static void requests(void) {
  const size_t most = gasnet_AMMaxMedium();
  char *const large = (char *)malloc(most + 4096);
  const size_t bytes = segments[0].size;
  CHECK(large != NULL);
  CHECK_EQ(gasnet_AMRequestShort0(nodes, 128), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestShort0((gasnet_node_t)-1, 128), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestMedium0(nodes, 128, target, 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(nodes, 128, target, 1, at(0, 0)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(nodes, 128, NULL, 0, NULL), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLongAsync0(nodes, 128, target, 1, at(0, 0)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestShort(0, 128, 17), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestShort(0, 128, -1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestShort(0, 128, INT_MAX), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestMedium(0, 128, target, 1, 17), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong(0, 128, target, 1, at(0, 0), 17), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLongAsync(0, 128, target, 1, at(0, 0), 17), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestMedium0(0, 128, large, most + 4096), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestMedium0(0, 128, target, SIZE_MAX), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestMedium0(0, 128, target, SIZE_MAX / 2), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestMedium0(0, 128, NULL, 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, NULL, 1, at(0, 0)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLongAsync0(0, 128, NULL, 1, at(0, 0)), GASNET_ERR_BAD_ARG);
  /* The destinations lie before, across and behind a segment. Some lengths wrap around. */
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, 1, NULL), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, 1, at(0, 0) - 1), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, 1, at(0, bytes)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, 2, at(0, bytes - 1)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, SIZE_MAX, at(0, 1)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, SIZE_MAX / 2, at(0, 1)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLong0(0, 128, target, SIZE_MAX - 7, at(0, 8)), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gasnet_AMRequestLongAsync0(0, 128, target, bytes + 1, at(0, 0)), GASNET_ERR_BAD_ARG);
  free(large);
}

int main(int argc, char **argv) {
  gex_System_SetVerboseErrors(argc > 1);
  before_init();
  CHECK_EQ(gasnet_init(&argc, &argv), GASNET_OK);
  gasnet_QueryGexObjects(&client, &ep, &team, &segment);
  me = gasnet_mynode();
  nodes = gasnet_nodes();
  check_rank = (int)me;
  before_attach();
  registrations();
  attaching();
  CHECK_EQ(gasnet_getSegmentInfo(segments, (int)nodes), GASNET_OK);
  queries();
  barrier();
  requests();
  barrier();
  CHECK_EQ(arrived, 0);
  if (me == nodes - 1) {
    CHECK_EQ(gasnet_AMRequestShort0(0, 255), GASNET_OK);
    GASNET_BLOCKUNTIL(arrived == 1);
  }
  finish();
  return 0;
}
