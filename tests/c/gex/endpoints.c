/* Additional endpoints, with segments in the program's memory and in the library's. Tests their
 * queries, puts and gets to them in every form, and memory kinds. */
#include <gasnet_mk.h>

#include "start.h"

#define BYTES 100000

static char memory[BYTES];
static char here[BYTES], back[BYTES];

static gex_EP_t make(gex_Segment_t bound) {
  gex_EP_t made = GEX_EP_INVALID;
  CHECK_EQ(gex_EP_Create(&made, client, GEX_EP_CAPABILITY_RMA, GEX_FLAG_HINT_ACCEL_ALL), GASNET_OK);
  CHECK(made != GEX_EP_INVALID && made != ep);
  CHECK(gex_EP_QueryClient(made) == client);
  CHECK(gex_EP_QuerySegment(made) == GEX_SEGMENT_INVALID);
  CHECK_EQ(gex_EP_QueryFlags(made), GEX_FLAG_HINT_ACCEL_ALL);
  CHECK(gex_EP_QueryCData(made) == NULL);
  gex_EP_SetCData(made, &here);
  CHECK(gex_EP_QueryCData(made) == &here && gex_EP_QueryCData(ep) == NULL);
  CHECK_EQ(gex_EP_BindSegment(made, bound, 0), GASNET_OK);
  CHECK(gex_EP_QuerySegment(made) == bound);
  return made;
}

static gex_Segment_t segment_of(void *address, uintptr_t bytes) {
  gex_Segment_t made = GEX_SEGMENT_INVALID;
  CHECK_EQ(gex_Segment_Create(&made, client, address, bytes, GEX_MK_HOST, 0), GASNET_OK);
  CHECK(made != GEX_SEGMENT_INVALID && made != segment);
  CHECK(gex_Segment_QueryClient(made) == client);
  CHECK_EQ(gex_Segment_QueryFlags(made), 0);
  CHECK_EQ(gex_Segment_QuerySize(made), bytes);
  CHECK(gex_Segment_QueryAddr(made) != NULL);
  CHECK(address == NULL || gex_Segment_QueryAddr(made) == address);
  gex_Segment_SetCData(made, &made);
  CHECK(gex_Segment_QueryCData(made) == &made);
  return made;
}

/* Returns the address of another rank's segment, which that rank has published. */
static char *place(gex_TM_t pair, gex_Rank_t rank, uintptr_t bytes) {
  void *owner = NULL, *local = &local;
  uintptr_t length = 0;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, rank, &owner, &local, &length, 0));
  CHECK(owner != NULL);
  CHECK_EQ(length, bytes);
  CHECK(local == (rank == me ? owner : NULL));
  return (char *)owner;
}

/* Puts to the next rank, checks the bytes that the previous rank has put here, and gets from the
 * next rank. */
static void forms(gex_TM_t pair, char *there, char *mine) {
  const gex_Rank_t next = neighbour(1), before = neighbour(size - 1);
  static const size_t lengths[] = { 1, 8, 777, 20000, BYTES };
  size_t i;
  for (i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    const size_t bytes = lengths[i];
    gex_Event_t event, local;
    unsigned int form;
    for (form = 0; form < 5; ++form) {
      fill(here, bytes, me * 100 + form);
      if (form == 0) gex_RMA_PutBlocking(pair, next, there, here, bytes, 0);
      if (form == 1) {
        event = gex_RMA_PutNB(pair, next, there, here, bytes, GEX_EVENT_NOW, 0);
        memset(here, 0, bytes);
        gex_Event_Wait(event);
      }
      if (form == 2) {
        event = gex_RMA_PutNB(pair, next, there, here, bytes, &local, 0);
        gex_Event_Wait(local);
        gex_Event_Wait(event);
      }
      if (form == 3) {
        gex_RMA_PutNBI(pair, next, there, here, bytes, GEX_EVENT_DEFER, 0);
        gex_NBI_Wait(GEX_EC_PUT, 0);
      }
      if (form == 4) {
        gex_NBI_BeginAccessRegion(0);
        gex_RMA_PutNBI(pair, next, there, here, bytes, GEX_EVENT_NOW, 0);
        gex_Event_Wait(gex_NBI_EndAccessRegion(0));
      }
      barrier();
      check_filled(mine, bytes, before * 100 + form);
      memset(back, 0, bytes);
      if (form == 0) gex_RMA_GetBlocking(pair, back, next, there, bytes, 0);
      if (form == 1) gex_Event_Wait(gex_RMA_GetNB(pair, back, next, there, bytes, 0));
      if (form > 1) {
        gex_RMA_GetNBI(pair, back, next, there, bytes, 0);
        gex_NBI_Wait(GEX_EC_GET, 0);
      }
      check_filled(back, bytes, me * 100 + form);
      barrier();
    }
  }
  gex_RMA_PutBlockingVal(pair, next, there + 3, 0x1234, 2, 0);
  gex_Event_Wait(gex_RMA_PutNBVal(pair, next, there + 5, 0x56, 1, 0));
  gex_RMA_PutNBIVal(pair, next, there + 6, 0x78, 1, 0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
  barrier();
  {
    uint16_t two;
    memcpy(&two, mine + 3, 2);
    CHECK(two == 0x1234 && mine[5] == 0x56 && mine[6] == 0x78);
  }
  CHECK_EQ(gex_RMA_GetBlockingVal(pair, next, there + 3, 2, 0), 0x1234);
  barrier();
}

static void refusals(void) {
  gex_EP_t made = GEX_EP_INVALID;
  gex_Segment_t of = GEX_SEGMENT_INVALID;
  gex_MK_t kind = GEX_MK_INVALID;
  gex_MK_Create_args_t args;
  gex_EP_Capabilities_t some = GEX_EP_CAPABILITY_AM | GEX_EP_CAPABILITY_VIS | GEX_EP_CAPABILITY_COLL | GEX_EP_CAPABILITY_AD;
  gex_System_SetVerboseErrors(0);
  CHECK_EQ(gex_EP_Create(&made, client, 0, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_Create(&made, client, some, GEX_FLAG_HINT_ACCEL_AD | GEX_FLAG_HINT_ACCEL_COLL), GASNET_ERR_RESOURCE);
  CHECK_EQ(gex_EP_Create(&made, client, GEX_EP_CAPABILITY_ALL, 0), GASNET_ERR_RESOURCE);
  CHECK(made == GEX_EP_INVALID);
  CHECK_EQ(gex_Segment_Create(&of, client, memory, 0, GEX_MK_HOST, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_Segment_Create(&of, client, memory, 10, GEX_MK_INVALID, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_Segment_Create(&of, client, memory, UINTPTR_MAX, GEX_MK_HOST, 0), GASNET_ERR_BAD_ARG);
  CHECK(of == GEX_SEGMENT_INVALID);
  memset(&args, 0, sizeof args);
  args.gex_class = GEX_MK_CLASS_CUDA_UVA;
  args.gex_args.gex_class_cuda_uva.gex_CUdevice = 0;
  CHECK_EQ(gex_MK_Create(&kind, client, &args, 0), GASNET_ERR_RESOURCE);
  args.gex_class = GEX_MK_CLASS_HIP;
  args.gex_args.gex_class_hip.gex_hipDevice = 0;
  CHECK_EQ(gex_MK_Create(&kind, client, &args, 0), GASNET_ERR_RESOURCE);
  args.gex_class = GEX_MK_CLASS_ZE;
  args.gex_flags = 0;
  args.gex_args.gex_class_ze.gex_zeDevice = args.gex_args.gex_class_ze.gex_zeContext = NULL;
  args.gex_args.gex_class_ze.gex_zeMemoryOrdinal = 0;
  CHECK_EQ(gex_MK_Create(&kind, client, &args, 0), GASNET_ERR_RESOURCE);
  args.gex_class = (gex_MK_Class_t)(GEX_MK_CLASS_HOST + 77);
  CHECK_EQ(gex_MK_Create(&kind, client, &args, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_MK_Create(&kind, client, NULL, 0), GASNET_ERR_BAD_ARG);
  CHECK(kind == GEX_MK_INVALID);
  gex_System_SetVerboseErrors(1);
}

/* The host's memory is a memory kind like any other. */
static void host_kind(void) {
  CHECK_EQ(gex_MK_QueryClass(GEX_MK_HOST), GEX_MK_CLASS_HOST);
  CHECK(gex_MK_QueryClient(GEX_MK_HOST) == client);
  CHECK_EQ(gex_MK_QueryFlags(GEX_MK_HOST), 0);
  CHECK(gex_MK_QueryCData(GEX_MK_HOST) == NULL);
  gex_MK_SetCData(GEX_MK_HOST, &memory[1]);
  CHECK(gex_MK_QueryCData(GEX_MK_HOST) == &memory[1] && gex_Client_QueryCData(client) == NULL);
  gex_MK_SetCData(GEX_MK_HOST, NULL);
  CHECK(gex_MK_QueryCData(GEX_MK_HOST) == NULL);
}

int main(int argc, char **argv) {
  gex_Segment_t of_program, of_library;
  gex_EP_t eps[3];
  gex_TM_t pairs[2], half;
  void *owner = NULL;
  uintptr_t length = 1;
  int i;
  start(&argc, &argv, NULL, 0, GASNET_PAGESIZE);
  refusals();
  host_kind();
  of_program = segment_of(memory, BYTES);
  of_library = segment_of(NULL, BYTES);
  gex_Segment_Destroy(segment_of(NULL, 5), 0);
  eps[0] = ep;
  eps[1] = make(of_program);
  eps[2] = make(of_library);
  for (i = 1; i < 3; ++i) {
    CHECK_EQ(gex_EP_QueryIndex(eps[i]), i);
    pairs[i - 1] = gex_TM_Pair(ep, gex_EP_QueryIndex(eps[i]));
  }
  CHECK(pairs[0] != pairs[1]);
  /* The segment has not been published yet. */
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pairs[0], me, &owner, NULL, &length, GEX_FLAG_IMMEDIATE));
  CHECK_EQ(length, 0);
  /* First the ranks of each half learn each other's segments, then all ranks learn all segments. */
  gex_TM_Split(&half, team, (int)(me % 2), 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
  CHECK_EQ(gex_EP_PublishBoundSegment(half, &eps[1], 1, 0), GASNET_OK);
  CHECK(place(pairs[0], me, BYTES) == memory);
  if (size > 2) place(pairs[0], (me + 2) % (size - size % 2), BYTES);
  gex_TM_Destroy(half, NULL, 0);
  CHECK_EQ(gex_EP_PublishBoundSegment(team, eps, 3, 0), GASNET_OK);
  CHECK_EQ(gex_EP_PublishBoundSegment(team, NULL, 0, 0), GASNET_OK);
  for (i = 0; i < 2; ++i) {
    char *const mine = (char *)gex_Segment_QueryAddr(gex_EP_QuerySegment(eps[i + 1]));
    forms(pairs[i], place(pairs[i], neighbour(1), BYTES), mine);
  }
  /* Creates endpoints up to the maximum number. */
  for (i = 3; i < GASNET_MAXEPS; ++i) {
    gex_EP_t made;
    CHECK_EQ(gex_EP_Create(&made, client, GEX_EP_CAPABILITY_RMA, 0), GASNET_OK);
    CHECK_EQ(gex_EP_QueryIndex(made), i);
  }
  gex_System_SetVerboseErrors(0);
  CHECK_EQ(gex_EP_Create(&eps[0], client, GEX_EP_CAPABILITY_RMA, 0), GASNET_ERR_RESOURCE);
  CHECK_EQ(gex_EP_BindSegment(eps[1], of_library, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_EP_BindSegment(ep, of_library, 0), GASNET_ERR_BAD_ARG);
  finish();
  return 0;
}
