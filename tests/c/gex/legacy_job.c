/* GASNet-1: init, attach, queries, waiting, locks, and the GASNet-EX objects that the job also has.
 * */
#include "legacy_start.h"

#if GASNET_VERSION != 1 || !_INCLUDED_GASNET_H || SIZEOF_GASNET_REGISTER_VALUE_T != 8
  #error "a constant differs from GASNet's"
#endif

static volatile int told;
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;

static void first(gasnet_token_t token) {
  gasnet_node_t source = (gasnet_node_t)-1;
  CHECK_EQ(gasnet_AMGetMsgSource(token, &source), GASNET_OK);
  CHECK_EQ(source, neighbour(nodes - 1));
  gasnet_hsl_lock(&lock);
  told++;
  gasnet_hsl_unlock(&lock);
}

static void other(gasnet_token_t token) { (void)token; }

static gasnet_handlerentry_t handlers[] = {
  {0, (gex_AM_Fn_t)first}, {255, (gex_AM_Fn_t)other}, {0, (gex_AM_Fn_t)other}, {128, (gex_AM_Fn_t)other}};

static void before_attach(void) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_TM_t team;
  gex_Segment_t segment = (gex_Segment_t)&team;
  CHECK(gasnet_getMaxGlobalSegmentSize() <= gasnet_getMaxLocalSegmentSize());
  CHECK_EQ(gasnet_getMaxLocalSegmentSize() % GASNET_PAGESIZE, 0);
  CHECK(gasnet_getenv("TEST_TEXT") && !strcmp(gasnet_getenv("TEST_TEXT"), "a value, with spaces"));
  gasnet_QueryGexObjects(&client, &ep, &team, &segment);
  CHECK(client && ep && team && !segment);
}

static void registered(void) {
  CHECK_EQ(handlers[0].index, 254);
  CHECK_EQ(handlers[1].index, 255);
  CHECK_EQ(handlers[2].index, 253);
  CHECK_EQ(handlers[3].index, 128);
  CHECK(handlers[0].fnptr == (gex_AM_Fn_t)first);
}

static void objects(void) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_TM_t team;
  gex_Segment_t segment;
  gasnet_QueryGexObjects(&client, &ep, &team, &segment);
  CHECK(client && ep && team && segment);
  CHECK(gex_TM_QueryEP(team) == ep && gex_EP_QueryClient(ep) == client && gex_EP_QuerySegment(ep) == segment);
  CHECK_EQ(gex_TM_QueryRank(team), me);
  CHECK_EQ(gex_TM_QuerySize(team), nodes);
  CHECK(gex_Segment_QueryAddr(segment) == segments[me].addr);
  gasnet_QueryGexObjects(NULL, NULL, NULL, NULL);
  /* The program may use both interfaces at the same time. */
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
}

static void tables(void) {
  gasnet_seginfo_t some[MOST_NODES + 1];
  gasnet_nodeinfo_t infos[MOST_NODES + 1];
  gasnet_node_t node;
  const char *const windows = gasnet_getenv("CONDUIT_WINDOWS");
  const int mapped = !windows || strcmp(windows, "0");
  /* The first table is larger than the job, and the second one is smaller. */
  memset(some, 0x55, sizeof(some));
  CHECK_EQ(gasnet_getSegmentInfo(some, (int)nodes + 1), GASNET_OK);
  for (node = 0; node < nodes; ++node) {
    CHECK(some[node].addr == segments[node].addr && some[node].size == segments[node].size);
    CHECK(some[node].size >= 4 * GASNET_PAGESIZE);
  }
  memset(some, 0x55, sizeof(some));
  CHECK_EQ(gasnet_getSegmentInfo(some, 1), GASNET_OK);
  CHECK(some[0].addr == segments[0].addr && some[1].size == (uintptr_t)0x5555555555555555U);
  CHECK_EQ(gasnet_getNodeInfo(infos, (int)nodes + 1), GASNET_OK);
  *(int *)segments[me].addr = 1000 + (int)me;
  barrier();
  for (node = 0; node < nodes; ++node) {
    CHECK_EQ(infos[node].host, infos[me].host);
    CHECK_EQ(infos[node].supernode == infos[me].supernode, mapped || node == me);
    /* With shared memory, adding the offset to a segment's address leads to that segment here. */
    if (infos[node].supernode == infos[me].supernode)
      CHECK_EQ(*(int *)((uintptr_t)segments[node].addr + infos[node].offset), 1000 + (int)node);
  }
  memset(infos, 0x55, sizeof(infos));
  CHECK_EQ(gasnet_getNodeInfo(infos, 1), GASNET_OK);
  CHECK_EQ(infos[1].host, 0x55555555);
}

static void waiting(void) {
  const int modes[] = {GASNET_WAIT_SPIN, GASNET_WAIT_BLOCK, GASNET_WAIT_SPINBLOCK};
  int i;
  for (i = 0; i < 3; ++i) {
    CHECK_EQ(gasnet_set_waitmode(modes[i]), GASNET_OK);
    CHECK_EQ(gasnet_AMRequestShort0(neighbour(1), handlers[0].index), GASNET_OK);
    GASNET_BLOCKUNTIL(told == i + 1);
    barrier();
  }
}

static void locks(void) {
  gasnet_hsl_t own;
  gasnet_hsl_init(&own);
  gasnet_hsl_lock(&own);
  gasnet_hsl_unlock(&own);
  CHECK_EQ(gasnet_hsl_trylock(&own), GASNET_OK);
  gasnet_hsl_unlock(&own);
  gasnet_hsl_destroy(&own);
  gasnet_hold_interrupts();
  gasnet_resume_interrupts();
}

static void types(void) {
  gasnet_handle_t handle = GASNET_INVALID_HANDLE;
  const gasnet_handler_t handler = 255;
  const gasnet_handlerarg_t argument = -1;
  const gasnet_register_value_t value = ~(gasnet_register_value_t)0;
  gasnet_memvec_t part;
  part.addr = &part;
  part.len = sizeof(part);
  CHECK(!handle && handler == 255 && argument < 0 && value > 0 && part.addr == &part && part.len);
  CHECK_EQ(sizeof(argument), 4);
  CHECK_EQ(sizeof(value), SIZEOF_GASNET_REGISTER_VALUE_T);
  CHECK_EQ(gasneti_mynode, me);
  CHECK(gasnet_AMMaxArgs() >= 16);
  CHECK(gasnet_AMMaxMedium() >= 512 && gasnet_AMMaxLongRequest() >= 512 && gasnet_AMMaxLongReply() >= 512);
}

static uintptr_t attached_bytes;

static void attached(void *address, uintptr_t bytes) {
  *(char *)address = 'a';
  attached_bytes = bytes;
}

int main(int argc, char **argv) {
  gasnet_client_attach_hook = &attached;
  CHECK_EQ(gasnet_init(&argc, &argv), GASNET_OK);
  me = gasnet_mynode();
  nodes = gasnet_nodes();
  check_rank = (int)me;
  CHECK(me < nodes && nodes <= MOST_NODES);
  before_attach();
  CHECK_EQ(gasnet_attach(handlers, 4, 4 * GASNET_PAGESIZE, GASNET_PAGESIZE), GASNET_OK);
  CHECK_EQ(gasnet_getSegmentInfo(segments, (int)nodes), GASNET_OK);
  CHECK_EQ(attached_bytes, segments[me].size);
  CHECK_EQ(*(char *)segments[me].addr, 'a');
  registered();
  objects();
  tables();
  barrier();
  waiting();
  locks();
  types();
  finish();
  return 0;
}
