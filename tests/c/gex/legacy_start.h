/* Joins a job by GASNet-1, in the way that most programs for GASNet-1 in this folder do. */
#ifndef GEX_LEGACY_START_H
#define GEX_LEGACY_START_H

#include <gasnet.h>

#include "check.h"

#define MOST_NODES 64

MAYBE_UNUSED static gasnet_node_t me, nodes;
MAYBE_UNUSED static gasnet_seginfo_t segments[MOST_NODES];

MAYBE_UNUSED static void barrier(void) {
  gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
  CHECK_EQ(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS), GASNET_OK);
}

MAYBE_UNUSED static gasnet_node_t neighbour(gasnet_node_t distance) { return (me + distance) % nodes; }

/* Returns the address of an offset in a node's segment. */
MAYBE_UNUSED static char *at(gasnet_node_t node, size_t offset) { return (char *)segments[node].addr + offset; }

MAYBE_UNUSED static void start(int *argc, char ***argv, gasnet_handlerentry_t *handlers, int count, uintptr_t bytes) {
  CHECK_EQ(gasnet_init(argc, argv), GASNET_OK);
  me = gasnet_mynode();
  nodes = gasnet_nodes();
  check_rank = (int)me;
  CHECK(nodes <= MOST_NODES);
  CHECK_EQ(gasnet_attach(handlers, count, bytes, 0), GASNET_OK);
  CHECK_EQ(gasnet_getSegmentInfo(segments, (int)nodes), GASNET_OK);
}

MAYBE_UNUSED static void finish(void) {
  barrier();
  gasnet_exit(0);
}

#endif
