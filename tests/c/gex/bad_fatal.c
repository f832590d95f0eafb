/* Makes one call with bad input, which must end the job: bad_fatal CASE. A single message names the
 * call, the rank and the error, and the exit code is 1. The Rust test has the list of cases with
 * their messages. Rank 0 makes the call while the other ranks wait in a barrier. */
#include <gasnet.h>
#include <gasnet_coll.h>
#include <gasnet_mk.h>
#include <gasnet_ratomic.h>

#include "start.h"

enum { SHORT = GEX_AM_INDEX_BASE, MEDIUM, LONG, TWICE, ASK, REPLY, PUT, POLL, IN_REPLY, BARRIER, WAIT, PREPARE, ARRAY };

static char bytes[256];

static void ignore(gex_Token_t token) { (void)token; }
static void ignore_payload(gex_Token_t token, void *where, size_t length) {
  (void)token;
  (void)where;
  (void)length;
}

static void reply_twice(gex_Token_t token) {
  gex_AM_ReplyShort0(token, REPLY, 0);
  gex_AM_ReplyShort0(token, REPLY, 0);
}

static void ask(gex_Token_t token) {
  (void)token;
  gex_AM_RequestShort0(team, me, SHORT, 0);
}

static void put(gex_Token_t token) {
  (void)token;
  gex_RMA_PutBlocking(team, me, base[me], bytes, 1, 0);
}

static void poll(gex_Token_t token) {
  (void)token;
  gasnet_AMPoll();
}

static void notify(gex_Token_t token) {
  (void)token;
  gasnet_barrier_notify(0, 0);
}

static void wait_for_puts(gex_Token_t token) {
  (void)token;
  gex_NBI_Wait(GEX_EC_PUT, 0);
}

static void prepare(gex_Token_t token) {
  (void)token;
  gex_AM_PrepareRequestMedium(team, me, NULL, 1, 1, NULL, 0, 0);
}

static void answer_by_reply(gex_Token_t token) { gex_AM_ReplyShort0(token, TWICE, 0); }

static gex_AM_SrcDesc_t prepared(size_t most) {
  return gex_AM_PrepareRequestMedium(team, me, NULL, 1, most, NULL, 0, 0);
}

static uint64_t word[1];
/* Holds an opcode that the compiler doesn't know. */
static volatile gex_OP_t unknown = GEX_OP_FADD;

static void reduce(const void *left, void *right, size_t count, const void *cdata) {
  (void)left;
  (void)right;
  (void)count;
  (void)cdata;
}

/* Starts a reduction without a function. */
#define REDUCE(type, width, operation) \
  gex_Coll_ReduceToAllNB(team, word, word, type, width, 1, operation, NULL, NULL, 0)

static void poll_prepared(void) {
  prepared(10);
  gasnet_AMPoll();
}

/* Puts words whose length the compiler knows, each one byte further than the previous one. */
static void put_words(char *at) {
  int i;
  for (i = 0; i < 64; ++i) gex_RMA_PutBlocking(team, me, at + i, bytes, 8, 0);
}

static void put_prepared(void) {
  prepared(10);
  gex_RMA_PutBlocking(team, me, base[me], bytes, 1, 0);
}

static void nested(void) {
  gex_NBI_BeginAccessRegion(0);
  gex_NBI_BeginAccessRegion(0);
}

static void wait_in_region(void) {
  gex_NBI_BeginAccessRegion(0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

static void cancelled_twice(void) {
  gex_AM_SrcDesc_t descriptor = prepared(10);
  gex_AM_CancelRequestMedium(descriptor, 0);
  gex_AM_CancelRequestMedium(descriptor, 0);
}

static void committed_as_another_kind(void) { gex_AM_CommitRequestLong0(prepared(10), LONG, 1, base[me]); }

static void prepared_twice(void) {
  prepared(10);
  prepared(10);
}

static void prepared_two_kinds(void) {
  gex_AM_PrepareRequestLong(team, me, bytes, 1, 10, base[me], GEX_EVENT_NOW, 0, 0);
  prepared(10);
}

/* A team that contains only this rank. */
static gex_TM_t own;

static void create(gex_TM_t parent, gex_Rank_t first, gex_Rank_t second, gex_Flags_t flags) {
  gex_EP_Location_t members[2];
  gex_TM_t made;
  members[0].gex_rank = first;
  members[1].gex_rank = second;
  members[0].gex_ep_index = members[1].gex_ep_index = 0;
  gex_TM_Create(&made, 1, parent, members, 2, NULL, 0, flags);
}

/* Returns a pair of endpoints whose target is another endpoint of this rank. That endpoint has a
 * segment of 8 bytes. */
static gex_TM_t second(void) {
  gex_EP_t made;
  gex_Segment_t bound;
  gex_EP_Create(&made, client, GEX_EP_CAPABILITY_RMA, 0);
  gex_Segment_Create(&bound, client, word, 8, GEX_MK_HOST, 0);
  gex_EP_BindSegment(made, bound, 0);
  gex_EP_PublishBoundSegment(own, &made, 1, 0);
  return gex_TM_Pair(ep, gex_EP_QueryIndex(made));
}

static gex_TM_t destroyed(void) {
  gex_TM_Destroy(own, NULL, 0);
  return own;
}

static void notified_twice(void) {
  gasnet_barrier_notify(1, 0);
  gasnet_barrier_notify(1, 0);
}

static void leaf_of_a_leaf(void) {
  gex_Event_QueryLeaf((gex_Event_t)(uintptr_t)14, GEX_EC_LC);
}

static void committed_elsewhere(void) {
  gex_AM_CommitRequestLong0(gex_AM_PrepareRequestLong(team, me, NULL, 1, 10, base[me], NULL, 0, 0), LONG, 1, base[me] + 16);
}

static gex_AD_t words_of_job;

static gex_AD_t destroyed_domain(void) {
  gex_AD_Destroy(words_of_job);
  return words_of_job;
}

static void create_ad(gex_DT_t type, gex_OP_t operations, gex_Flags_t flags) {
  gex_AD_t ad;
  gex_AD_Create(&ad, team, type, operations, flags);
}

/* Starts an atomic that has a result on a number of this rank. */
#define AD(domain, rank, at, op, flags) gex_AD_OpNB_U64(domain, word, rank, at, op, 1, 2, flags)

#define NONE GEX_TM_INVALID

/* Two ranges in this rank's segment. The second one begins 8 bytes after the first. */
static gex_Memvec_t there[2], here[2];
static const size_t counts[] = {2, 2};
static const ptrdiff_t strides[] = {8, 16}, folded[] = {8, 8};
static const size_t legacy_counts[] = {8, 2, 2}, legacy_strides[] = {8, 16};

static void set_ranges(ptrdiff_t at, char *from) {
  int i;
  for (i = 0; i < 2; ++i) {
    there[i].gex_addr = base[me] + at + 8 * i;
    here[i].gex_addr = from ? from + 8 * i : NULL;
    there[i].gex_len = here[i].gex_len = 8;
  }
}

static void put_vector(ptrdiff_t at, size_t more) {
  set_ranges(at, bytes);
  here[1].gex_len += more;
  gex_VIS_VectorPutBlocking(team, me, 2, there, 2, here, 0);
}

static void get_vector_to_null(void) {
  set_ranges(0, NULL);
  gex_VIS_VectorGetNB(team, 2, here, me, 2, there, 0);
}

static void get_list(ptrdiff_t at, char *to) {
  void *from[2], *into[2];
  set_ranges(at, to);
  from[0] = there[0].gex_addr;
  from[1] = there[1].gex_addr;
  into[0] = here[0].gex_addr;
  into[1] = here[1].gex_addr;
  gex_VIS_IndexedGetNBI(team, 2, into, 8, me, 2, from, 8, 0);
}

static void put_array(char *to, const ptrdiff_t *to_strides, char *from, const ptrdiff_t *from_strides, const size_t *of) {
  gex_VIS_StridedPutNB(team, me, to, to_strides, from, from_strides, 8, of, 2, 0);
}

static void put_array_in_handler(gex_Token_t token) {
  (void)token;
  put_array(base[me], strides, bytes, strides, counts);
}

static void complete_by(gex_AM_Index_t handler) {
  gex_VIS_SetPeerCompletionHandler(handler, bytes, 4, 0);
  put_vector(0, 0);
}

/* If a call has only one case, the case has the name of the call. */
#define CASES(CASE)                                                                                              \
  CASE(short_to_no_rank, gex_AM_RequestShort0(team, size, SHORT, 0))                                             \
  CASE(short_to_invalid_rank, gex_AM_RequestShort0(team, GEX_RANK_INVALID, SHORT, 0))                            \
  CASE(medium_to_no_rank, gex_AM_RequestMedium0(team, 77, MEDIUM, bytes, 1, GEX_EVENT_NOW, 0))                   \
  CASE(long_to_no_rank, gex_AM_RequestLong0(team, 77, LONG, bytes, 1, base[0], GEX_EVENT_NOW, 0))                \
  CASE(empty_long_to_no_rank, gex_AM_RequestLong0(team, 77, LONG, NULL, 0, NULL, GEX_EVENT_NOW, 0))              \
  CASE(short_to_no_handler, gex_AM_RequestShort0(team, me, 199, 0))                                              \
  CASE(short_to_reserved_handler, gex_AM_RequestShort0(team, me, 1, 0))                                          \
  CASE(short_to_handler_0, gex_AM_RequestShort0(team, me, 0, 0))                                                 \
  CASE(short_with_an_argument_too_many, gex_AM_RequestShort1(team, me, SHORT, 0, 5))                             \
  CASE(medium_to_handler_of_shorts, gex_AM_RequestMedium0(team, me, SHORT, bytes, 1, GEX_EVENT_NOW, 0))          \
  CASE(request_to_handler_of_replies, gex_AM_RequestShort0(team, me, REPLY, 0))                                  \
  CASE(medium_of_null, gex_AM_RequestMedium0(team, me, MEDIUM, NULL, 5, GEX_EVENT_NOW, 0))                       \
  CASE(medium_too_long, gex_AM_RequestMedium0(team, me, MEDIUM, bytes, (size_t)1 << 30, GEX_EVENT_NOW, 0))       \
  CASE(medium_of_wild_size, gex_AM_RequestMedium0(team, me, MEDIUM, bytes, SIZE_MAX, GEX_EVENT_NOW, 0))          \
  CASE(long_of_null, gex_AM_RequestLong0(team, me, LONG, NULL, 5, base[me], GEX_EVENT_NOW, 0))                   \
  CASE(long_of_wild_size, gex_AM_RequestLong0(team, me, LONG, bytes, SIZE_MAX - 3, base[me] + 4, GEX_EVENT_NOW, 0)) \
  CASE(long_to_null, gex_AM_RequestLong0(team, me, LONG, bytes, 5, NULL, GEX_EVENT_NOW, 0))                      \
  CASE(long_before_segment, gex_AM_RequestLong0(team, me, LONG, bytes, 1, base[me] - 1, GEX_EVENT_NOW, 0))       \
  CASE(long_across_end,                                                                                          \
       gex_AM_RequestLong0(team, me, LONG, bytes, 2, base[me] + GASNET_PAGESIZE - 1, GEX_EVENT_NOW, 0))          \
  CASE(medium_with_defer, gex_AM_RequestMedium0(team, me, MEDIUM, bytes, 1, GEX_EVENT_DEFER, 0))                 \
  CASE(medium_without_option, gex_AM_RequestMedium0(team, me, MEDIUM, bytes, 1, NULL, 0))                        \
  CASE(reply_twice, gex_AM_RequestShort0(team, me, TWICE, 0))                                                    \
  CASE(reply_in_reply, gex_AM_RequestShort0(team, me, IN_REPLY, 0))                                                \
  CASE(request_in_handler, gex_AM_RequestShort0(team, me, ASK, 0))                                               \
  CASE(put_in_handler, gex_AM_RequestShort0(team, me, PUT, 0))                                                   \
  CASE(poll_in_handler, gex_AM_RequestShort0(team, me, POLL, 0))                                                 \
  CASE(barrier_in_handler, gex_AM_RequestShort0(team, me, BARRIER, 0))                                           \
  CASE(wait_in_handler, gex_AM_RequestShort0(team, me, WAIT, 0))                                                 \
  CASE(prepare_in_handler, gex_AM_RequestShort0(team, me, PREPARE, 0))                                           \
  CASE(token_null, gex_Token_Info(NULL, NULL, GEX_TI_ALL))                                                       \
  CASE(reply_without_token, gex_AM_ReplyShort0(NULL, REPLY, 0))                                                  \
  CASE(prepare_to_no_rank, gex_AM_PrepareRequestMedium(team, 77, NULL, 1, 1, NULL, 0, 0))                        \
  CASE(prepare_least_above_most, gex_AM_PrepareRequestMedium(team, me, NULL, 2, 1, NULL, 0, 0))                  \
  CASE(prepare_too_long, gex_AM_PrepareRequestMedium(team, me, NULL, (size_t)1 << 40, SIZE_MAX, NULL, 0, 0))     \
  CASE(prepare_with_option, gex_AM_PrepareRequestMedium(team, me, NULL, 1, 1, GEX_EVENT_NOW, 0, 0))              \
  CASE(prepare_without_option, gex_AM_PrepareRequestMedium(team, me, bytes, 1, 1, NULL, 0, 0))                   \
  CASE(prepare_twice, prepared_twice())                                                                          \
  CASE(prepare_two_kinds, prepared_two_kinds())                                                                  \
  CASE(commit_more, gex_AM_CommitRequestMedium0(prepared(10), MEDIUM, 11))                                       \
  CASE(commit_wild, gex_AM_CommitRequestMedium0(prepared(10), MEDIUM, SIZE_MAX))                                 \
  CASE(commit_no_descriptor, gex_AM_CommitRequestMedium0(GEX_AM_SRCDESC_NO_OP, MEDIUM, 1))                       \
  CASE(commit_wild_descriptor, gex_AM_CommitRequestMedium0((gex_AM_SrcDesc_t)bytes, MEDIUM, 1))                  \
  CASE(commit_another_kind, committed_as_another_kind())                                                         \
  CASE(cancel_twice, cancelled_twice())                                                                          \
  CASE(address_of_no_descriptor, gex_AM_SrcDescAddr(GEX_AM_SRCDESC_NO_OP))                                       \
  CASE(size_of_wild_descriptor, gex_AM_SrcDescSize((gex_AM_SrcDesc_t)bytes))                                     \
  CASE(poll_while_prepared, poll_prepared())                                                                     \
  CASE(put_while_prepared, put_prepared())                                                                       \
  CASE(put_to_no_rank, gex_RMA_PutBlocking(team, size, base[0], bytes, 1, 0))                                    \
  CASE(empty_put_to_no_rank, gex_RMA_PutBlocking(team, GEX_RANK_INVALID, base[0], bytes, 0, 0))                  \
  CASE(put_to_null, gex_RMA_PutBlocking(team, me, NULL, bytes, 1, 0))                                            \
  CASE(put_before_segment, gex_RMA_PutBlocking(team, me, base[me] - 1, bytes, 1, 0))                             \
  CASE(put_across_end, gex_RMA_PutBlocking(team, me, base[me] + GASNET_PAGESIZE - 1, bytes, 2, 0))               \
  CASE(put_word_across_end, put_words(base[me] + GASNET_PAGESIZE - 64))                                             \
  CASE(put_behind_segment, gex_RMA_PutNBI(team, me, base[me] + GASNET_PAGESIZE, bytes, 1, GEX_EVENT_NOW, 0))     \
  CASE(put_of_null, gex_RMA_PutNB(team, me, base[me], NULL, 1, GEX_EVENT_NOW, 0))                                \
  CASE(put_of_wild_size, gex_RMA_PutNB(team, me, base[me] + 8, bytes, SIZE_MAX - 7, GEX_EVENT_DEFER, 0))         \
  CASE(put_without_option, gex_RMA_PutNB(team, me, base[me], bytes, 1, NULL, 0))                                 \
  CASE(put_nb_of_group, gex_RMA_PutNB(team, me, base[me], bytes, 1, GEX_EVENT_GROUP, 0))                         \
  CASE(put_nbi_with_event, gex_RMA_PutNBI(team, me, base[me], bytes, 1, (gex_Event_t *)(void *)bytes, 0))        \
  CASE(get_from_no_rank, gex_RMA_GetBlocking(team, bytes, 77, base[0], 1, 0))                                    \
  CASE(get_from_null, gex_RMA_GetNB(team, bytes, me, NULL, 1, 0))                                                \
  CASE(get_to_null, gex_RMA_GetBlocking(team, NULL, me, base[me], 1, 0))                                         \
  CASE(get_nbi_to_null, gex_RMA_GetNBI(team, NULL, me, base[me], 1, 0))                                          \
  CASE(get_of_wild_size, gex_RMA_GetNBI(team, bytes, me, base[me], SIZE_MAX, 0))                                 \
  CASE(ranges_to_no_rank, gex_VIS_StridedPutBlocking(team, size, base[0], strides, bytes, strides, 8, counts, 2, 0)) \
  CASE(ranges_of_other_lengths, put_vector(0, 4))                                                                \
  CASE(ranges_across_end, put_vector(GASNET_PAGESIZE - 12, 0))                                                   \
  CASE(ranges_of_wild_size, put_vector(0, SIZE_MAX - 8))                                                         \
  CASE(ranges_at_null, gex_VIS_VectorPutBlocking(team, me, 3, NULL, 3, here, 0))                                 \
  CASE(ranges_to_null, get_vector_to_null())                                                                     \
  CASE(list_before_segment, get_list(-4, bytes))                                                                 \
  CASE(list_at_null, gex_VIS_IndexedPutNB(team, me, 5, NULL, 8, 1, NULL, 40, 0))                                 \
  CASE(list_to_null, get_list(0, NULL))                                                                          \
  CASE(array_across_end, put_array(base[me] + GASNET_PAGESIZE - 24, strides, bytes, strides, counts))            \
  CASE(array_before_segment, gex_VIS_StridedGetBlocking(team, bytes, strides, me, base[me] - 8, strides, 8, counts, 2, 0)) \
  CASE(array_of_null_strides, put_array(base[me], NULL, bytes, strides, counts))                                 \
  CASE(array_of_null_counts, put_array(base[me], strides, bytes, strides, NULL))                                 \
  CASE(array_of_null, put_array(base[me], strides, NULL, strides, counts))                                       \
  CASE(array_that_overlaps, put_array(base[me], folded, bytes, strides, counts))                                 \
  CASE(array_in_handler, gex_AM_RequestShort0(team, me, ARRAY, 0))                                               \
  CASE(legacy_ranges_to_no_rank, gasnet_putv_bulk(size, 0, NULL, 0, NULL))                                       \
  CASE(legacy_array_across_end, gasnet_gets_bulk(bytes, legacy_strides, me, base[me] + GASNET_PAGESIZE - 24, legacy_strides, legacy_counts, 2)) \
  CASE(completion_of_null, gex_VIS_SetPeerCompletionHandler(MEDIUM, NULL, 5, 0))                                 \
  CASE(completion_too_long, gex_VIS_SetPeerCompletionHandler(MEDIUM, bytes, GEX_VIS_MAX_PEERCOMPLETION + 1, 0))  \
  CASE(completion_with_flags, gex_VIS_SetPeerCompletionHandler(MEDIUM, bytes, 1, 2))                             \
  CASE(completion_by_reserved_handler, gex_VIS_SetPeerCompletionHandler(5, bytes, 1, 0))                         \
  CASE(completion_by_no_handler, complete_by(199))                                                               \
  CASE(completion_by_handler_of_requests, complete_by(MEDIUM))                                                   \
  CASE(value_of_no_bytes, gex_RMA_PutBlockingVal(team, me, base[me], 1, 0, 0))                                   \
  CASE(value_of_nine_bytes, gex_RMA_PutNBVal(team, me, base[me], 1, 9, 0))                                       \
  CASE(implicit_value_outside, gex_RMA_PutNBIVal(team, me, base[me] + GASNET_PAGESIZE - 3, 1, 4, 0))             \
  CASE(get_value_of_nine_bytes, gex_RMA_GetBlockingVal(team, me, base[me], 9, 0))                                \
  CASE(get_value_from_no_rank, gex_RMA_GetBlockingVal(team, 77, base[me], 1, 0))                                 \
  CASE(memset_outside, gasnet_memset(me, base[me] + 1, 0, GASNET_PAGESIZE))                                      \
  CASE(memset_nb_of_wild_size, gasnet_memset_nb(me, base[me], 0, SIZE_MAX))                                      \
  CASE(memset_nbi_to_no_rank, gasnet_memset_nbi(77, base[me], 0, 1))                                             \
  CASE(get_nb_value_of_no_bytes, gasnet_get_nb_val(me, base[me], 0))                                             \
  CASE(get_nb_value_from_null, gasnet_get_nb_val(me, NULL, 8))                                                   \
  CASE(wait_for_garbage, gex_Event_Wait((gex_Event_t)(void *)bytes))                                             \
  CASE(wait_for_no_op, gex_Event_Wait(GEX_EVENT_NO_OP))                                                          \
  CASE(test_of_stale_event, gex_Event_Test((gex_Event_t)(uintptr_t)0x7FFFFFFC))                                  \
  CASE(events_at_null, gex_Event_WaitAll(NULL, 3, 0))                                                            \
  CASE(events_of_wild_count, gex_Event_TestSome((gex_Event_t *)(void *)bytes, SIZE_MAX, 0))                      \
  CASE(leaf_of_a_leaf, leaf_of_a_leaf())                                                                         \
  CASE(nested_regions, nested())                                                                                 \
  CASE(end_of_no_region, gex_NBI_EndAccessRegion(0))                                                             \
  CASE(wait_in_region, wait_in_region())                                                                         \
  CASE(notify_twice, notified_twice())                                                                           \
  CASE(wait_without_notify, gasnet_barrier_wait(0, 0))                                                           \
  CASE(try_without_notify, gasnet_barrier_try(0, 0))                                                             \
  CASE(barrier_flags, gasnet_barrier_notify(0, 64))                                                              \
  CASE(null_team_of_short, gex_AM_RequestShort0(NONE, me, SHORT, 0))                                             \
  CASE(null_team_of_medium, gex_AM_RequestMedium0(NONE, me, MEDIUM, bytes, 1, GEX_EVENT_NOW, 0))                 \
  CASE(null_team_of_long, gex_AM_RequestLong0(NONE, me, LONG, bytes, 1, base[me], GEX_EVENT_NOW, 0))             \
  CASE(null_team_of_prepare_medium, gex_AM_PrepareRequestMedium(NONE, me, NULL, 1, 1, NULL, 0, 0))               \
  CASE(null_team_of_prepare_long, gex_AM_PrepareRequestLong(NONE, me, NULL, 1, 1, base[me], NULL, 0, 0))         \
  CASE(null_team_of_put, gex_RMA_PutBlocking(NONE, me, base[me], bytes, 1, 0))                                   \
  CASE(null_team_of_get, gex_RMA_GetBlocking(NONE, bytes, me, base[me], 1, 0))                                   \
  CASE(null_team_of_put_nb, gex_RMA_PutNB(NONE, me, base[me], bytes, 1, GEX_EVENT_NOW, 0))                       \
  CASE(null_team_of_get_nb, gex_RMA_GetNB(NONE, bytes, me, base[me], 1, 0))                                      \
  CASE(null_team_of_put_nbi, gex_RMA_PutNBI(NONE, me, base[me], bytes, 1, GEX_EVENT_NOW, 0))                     \
  CASE(null_team_of_get_nbi, gex_RMA_GetNBI(NONE, bytes, me, base[me], 1, 0))                                    \
  CASE(null_team_of_put_value, gex_RMA_PutBlockingVal(NONE, me, base[me], 1, 1, 0))                              \
  CASE(null_team_of_get_value, gex_RMA_GetBlockingVal(NONE, me, base[me], 1, 0))                                 \
  CASE(null_team_of_put_value_nb, gex_RMA_PutNBVal(NONE, me, base[me], 1, 1, 0))                                 \
  CASE(null_team_of_put_value_nbi, gex_RMA_PutNBIVal(NONE, me, base[me], 1, 1, 0))                               \
  CASE(null_team_of_vector, gex_VIS_VectorPutNB(NONE, me, 0, NULL, 0, NULL, 0))                                  \
  CASE(null_team_of_array, gex_VIS_StridedGetNBI(NONE, bytes, NULL, me, base[me], NULL, 8, NULL, 0, 0))          \
  CASE(endpoint_for_team_of_list, gex_VIS_IndexedPutNB((gex_TM_t)(void *)ep, me, 0, NULL, 8, 0, NULL, 8, 0))     \
  CASE(endpoint_for_team_of_short, gex_AM_RequestShort0((gex_TM_t)(void *)ep, me, SHORT, 0))                     \
  CASE(endpoint_for_team_of_put, gex_RMA_PutBlocking((gex_TM_t)(void *)ep, me, base[me], bytes, 1, 0))           \
  CASE(commit_to_another_place, committed_elsewhere())                                                           \
  CASE(endpoint_for_client, gex_Client_QueryFlags((gex_Client_t)(void *)ep))                                     \
  CASE(client_null, gex_Client_QueryName(GEX_CLIENT_INVALID))                                                    \
  CASE(team_null, gex_TM_QueryRank(GEX_TM_INVALID))                                                              \
  CASE(team_of_jobrank_null, gex_TM_TranslateRankToJobrank(GEX_TM_INVALID, 0))                                   \
  CASE(jobrank_of_no_rank, gex_TM_TranslateRankToJobrank(team, size))                                            \
  CASE(rank_of_no_jobrank, gex_TM_TranslateJobrankToRank(team, GEX_RANK_INVALID))                                \
  CASE(endpoint_of_no_rank, gex_TM_TranslateRankToEP(team, size, 0))                                             \
  CASE(endpoint_with_flags, gex_TM_TranslateRankToEP(team, 0, 2))                                                \
  CASE(team_for_endpoint, gex_EP_RegisterHandlers((gex_EP_t)(void *)team, NULL, 0))                              \
  CASE(client_for_segment, gex_Segment_QueryAddr((gex_Segment_t)(void *)client))                                 \
  CASE(team_of_barrier_null, gex_Coll_BarrierNB(GEX_TM_INVALID, 0))                                              \
  CASE(endpoint_for_team_of_barrier, gex_Coll_BarrierBlocking((gex_TM_t)(void *)ep, 0))                          \
  CASE(team_of_broadcast_null, gex_Coll_BroadcastNB(GEX_TM_INVALID, 0, word, word, 4, 0))                          \
  CASE(broadcast_from_no_rank, gex_Coll_BroadcastNB(team, 2, word, word, 4, 0))                                    \
  CASE(broadcast_with_flags, gex_Coll_BroadcastNB(team, 0, word, word, 4, 1))                                      \
  CASE(reduction_of_other_width, REDUCE(GEX_DT_I64, 4, GEX_OP_ADD))                                                \
  CASE(reduction_of_no_type, REDUCE(0x80, 8, GEX_OP_ADD))                                                          \
  CASE(reduction_by_no_operation, gex_Coll_ReduceToOneNB(team, 0, word, word, GEX_DT_I64, 8, 1, GEX_OP_SUB, NULL, NULL, 0)) \
  CASE(bits_of_a_float, gex_Coll_ReduceToOneNB(team, 0, word, word, GEX_DT_FLT, 4, 1, GEX_OP_AND, NULL, NULL, 0))  \
  CASE(reduction_by_no_function, REDUCE(GEX_DT_USER, 8, GEX_OP_USER))                                              \
  CASE(own_type_known_operation, REDUCE(GEX_DT_USER, 8, GEX_OP_ADD))                                               \
  CASE(elements_of_no_bytes, gex_Coll_ReduceToAllNB(team, word, word, GEX_DT_USER, 0, 1, GEX_OP_USER, reduce, NULL, 0)) \
  CASE(broadcast_of_null, gex_Coll_BroadcastNB(team, 0, NULL, NULL, 4, 0))                                       \
  CASE(broadcast_of_wild_size, gex_Coll_BroadcastNB(team, 0, word, word, SIZE_MAX, 0))                           \
  CASE(reduction_of_wild_count,                                                                                  \
       gex_Coll_ReduceToAllNB(team, word, word, GEX_DT_I64, 8, SIZE_MAX / 4, GEX_OP_ADD, NULL, NULL, 0))         \
  CASE(reduction_of_null,                                                                                        \
       gex_Coll_ReduceToOneNB(team, 0, word, NULL, GEX_DT_I64, 8, 1, GEX_OP_ADD, NULL, NULL, 0))                 \
  CASE(team_destroyed, gex_TM_QuerySize(destroyed()))                                                            \
  CASE(put_by_team_destroyed, gex_RMA_PutBlocking(destroyed(), 0, base[me], bytes, 1, 0))                        \
  CASE(job_team_destroyed, gex_TM_Destroy(team, NULL, 0))                                                        \
  CASE(put_to_no_rank_of_team, gex_RMA_PutBlocking(own, 1, base[1], bytes, 1, 0))                                \
  CASE(short_to_no_rank_of_team, gex_AM_RequestShort0(own, 1, SHORT, 0))                                         \
  CASE(broadcast_from_no_rank_of_team, gex_Coll_BroadcastNB(own, 1, word, word, 4, 0))                           \
  CASE(jobrank_of_no_rank_of_team, gex_TM_TranslateRankToJobrank(own, 1))                                        \
  CASE(split_of_negative_color, gex_TM_Split(&own, own, -1, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH))                 \
  CASE(split_without_scratch, gex_TM_Split(&own, own, 0, 0, NULL, 0, 0))                                         \
  CASE(split_of_pair, gex_TM_Split(&own, gex_TM_Pair(ep, 0), 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH))             \
  CASE(created_with_one_twice, create(team, 0, 0, GEX_FLAG_TM_NO_SCRATCH))                                       \
  CASE(created_with_no_member, create(own, 0, 1, GEX_FLAG_TM_NO_SCRATCH | GEX_FLAG_RANK_IS_JOBRANK))             \
  CASE(created_with_no_rank, create(own, 0, 1, GEX_FLAG_TM_NO_SCRATCH))                                          \
  CASE(created_with_two_kinds_of_scratch, create(team, 0, 1, GEX_FLAG_TM_NO_SCRATCH | GEX_FLAG_TM_LOCAL_SCRATCH)) \
  CASE(created_with_scratch_at_null, create(team, 0, 1, GEX_FLAG_TM_LOCAL_SCRATCH))                              \
  CASE(pair_of_no_endpoint, gex_RMA_PutBlocking(gex_TM_Pair(ep, 500), 0, base[0], bytes, 1, 0))                  \
  CASE(barrier_of_pair, gex_Coll_BarrierNB(gex_TM_Pair(ep, 0), 0))                                               \
  CASE(scatter_with_two_syncs, gasnet_coll_scatter(own, word, 0, word, 8, 3 | GASNET_COLL_OUT_MYSYNC))           \
  CASE(gather_without_sync, gasnet_coll_gather_nb(own, 0, word, word, 8, GASNET_COLL_IN_MYSYNC))                 \
  CASE(exchange_of_null, gasnet_coll_exchange(own, NULL, word, 8, GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC)) \
  CASE(exchange_of_wild_size, gasnet_coll_exchange_nb(team, word, word, SIZE_MAX / 2 + 1, 2 | GASNET_COLL_OUT_NOSYNC)) \
  CASE(barrier_with_id_of_team, gasnet_coll_barrier_notify(own, 0, 0))                                           \
  CASE(kind_destroyed, gex_MK_Destroy(GEX_MK_HOST, 0))                                                           \
  CASE(class_of_no_kind, gex_MK_QueryClass(GEX_MK_INVALID))                                                      \
  CASE(attached_segment_destroyed, gex_Segment_Destroy(segment, 0))                                              \
  CASE(no_segment_destroyed, gex_Segment_Destroy((gex_Segment_t)(void *)ep, 0))                                  \
  CASE(array_to_second_endpoint, gex_VIS_IndexedPutNB(second(), me, 0, NULL, 8, 0, NULL, 8, 0))                  \
  CASE(no_endpoint_published, gex_EP_PublishBoundSegment(own, (gex_EP_t *)(void *)&client, 1, 0))                \
  CASE(short_to_second_endpoint, gex_AM_RequestShort0(second(), me, SHORT, 0))                                   \
  CASE(put_beyond_second_endpoint, gex_RMA_PutBlocking(second(), me, word, bytes, 9, 0))                         \
  CASE(put_to_second_endpoint_of_other, gex_RMA_PutBlocking(second(), 1, word, bytes, 8, 0))                     \
  CASE(domain_of_no_type, create_ad(GEX_DT_USER, GEX_OP_ADD, 0))                                                 \
  CASE(domain_of_two_types, create_ad(GEX_DT_U32 | GEX_DT_U64, GEX_OP_ADD, 0))                                   \
  CASE(domain_of_no_operation, create_ad(GEX_DT_U64, 0, 0))                                                      \
  CASE(domain_of_reductions, create_ad(GEX_DT_U64, GEX_OP_ADD | GEX_OP_USER, 0))                                 \
  CASE(domain_of_a_floats_bits, create_ad(GEX_DT_DBL, GEX_OP_ADD | GEX_OP_FXOR, 0))                              \
  CASE(domain_with_flags, create_ad(GEX_DT_U64, GEX_OP_ADD, GEX_FLAG_IMMEDIATE))                                 \
  CASE(domain_of_two_favours,                                                                                    \
       create_ad(GEX_DT_U64, GEX_OP_ADD, GEX_FLAG_AD_FAVOR_MY_RANK | GEX_FLAG_AD_FAVOR_REMOTE))                  \
  CASE(domain_of_two_places,                                                                                     \
       create_ad(GEX_DT_U64, GEX_OP_ADD, GEX_FLAG_PEER_SEG_BOUND | GEX_FLAG_PEER_SEG_OFFSET))                    \
  CASE(domain_of_team_null, gex_AD_Create(&words_of_job, NONE, GEX_DT_U64, GEX_OP_ADD, 0))                       \
  CASE(domain_to_null, gex_AD_Create(NULL, team, GEX_DT_U64, GEX_OP_ADD, 0))                                     \
  CASE(domain_null, gex_AD_QueryDT(GEX_AD_INVALID))                                                              \
  CASE(team_for_domain, gex_AD_SetCData((gex_AD_t)(uintptr_t)team, NULL))                                        \
  CASE(domain_destroyed_twice, gex_AD_Destroy(destroyed_domain()))                                                      \
  CASE(atomic_of_destroyed_domain, AD(destroyed_domain(), me, base[me], GEX_OP_FADD, 0))                                \
  CASE(atomic_of_domain_null, AD(GEX_AD_INVALID, me, base[me], GEX_OP_FADD, 0))                                  \
  CASE(atomic_of_another_type, gex_AD_OpNB_I64(words_of_job, NULL, me, base[me], GEX_OP_ADD, 1, 0, 0))           \
  CASE(atomic_of_another_operation, AD(words_of_job, me, base[me], GEX_OP_FMULT, 0))                             \
  CASE(atomic_of_two_operations, AD(words_of_job, me, base[me], GEX_OP_ADD | GEX_OP_FADD, 0))                    \
  CASE(atomic_with_flags, AD(words_of_job, me, base[me], GEX_OP_ADD, GEX_FLAG_AD_FAVOR_REMOTE))                  \
  CASE(atomic_to_no_rank, AD(words_of_job, size, base[me], GEX_OP_ADD, 0))                                       \
  CASE(atomic_to_no_jobrank, AD(words_of_job, 77, base[me], GEX_OP_ADD, GEX_FLAG_RANK_IS_JOBRANK))               \
  CASE(atomic_not_on_this_rank, AD(words_of_job, 1, base[1], GEX_OP_ADD, GEX_FLAG_AD_MY_RANK))                   \
  CASE(atomic_misaligned, AD(words_of_job, me, base[me] + 4, GEX_OP_ADD, 0))                                     \
  CASE(atomic_to_null, AD(words_of_job, me, NULL, GEX_OP_ADD, 0))                                                \
  CASE(atomic_behind_segment, AD(words_of_job, me, base[me] + GASNET_PAGESIZE, GEX_OP_ADD, 0))                   \
  CASE(implicit_atomic_before_segment,                                                                           \
       gex_AD_OpNBI_U64(words_of_job, word, 1, base[1] - 8, GEX_OP_FADD, 1, 0, 0))                               \
  CASE(atomic_to_no_result, gex_AD_OpNB_U64(words_of_job, NULL, me, base[me], unknown, 1, 0, 0))                 \
  CASE(segment_of_no_rank, gex_EP_QueryBoundSegmentNB(team, 77, NULL, NULL, NULL, 0))                            \
  CASE(credits_of_no_rank, gasnet_send_credits(size))                                                            \
  CASE(stalls_of_no_rank, gasnet_credit_stalls(size))                                                            \
  CASE(revoked_of_no_rank, gasnet_revoked_credits(size))

/* These cases run before the job is joined or before a segment is attached. */
#define EARLY_CASES(CASE)                                                                      \
  CASE(rank_before_init, gex_System_QueryJobRank())                                            \
  CASE(poll_before_init, gasnet_AMPoll())                                                      \
  CASE(nodes_before_init, gasnet_nodes())                                                      \
  CASE(request_before_init, gex_AM_RequestShort0(NULL, 0, SHORT, 0))                           \
  CASE(put_before_init, gex_RMA_PutBlocking(NULL, 0, bytes, bytes, 1, 0))                      \
  CASE(barrier_before_init, gasnet_barrier(0, 0))                                              \
  CASE(wait_before_init, gex_NBI_Wait(GEX_EC_ALL, 0))                                          \
  CASE(register_before_init, gex_EP_RegisterHandlers(NULL, NULL, 0))
#define UNATTACHED_CASES(CASE)                                                                 \
  CASE(put_before_attach, gex_RMA_PutBlocking(team, 0, bytes, bytes, 1, 0))                    \
  CASE(get_before_attach, gex_RMA_GetBlocking(team, bytes, 0, bytes, 1, 0))                    \
  CASE(long_before_attach, gex_AM_RequestLong0(team, 0, LONG, bytes, 1, bytes, GEX_EVENT_NOW, 0))

#define DO(name, action) \
  if (!strcmp(wanted, #name)) (void)(action);

int main(int argc, char **argv) {
  const gex_Flags_t request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t handlers[] = {{SHORT, (gex_AM_Fn_t)ignore, GEX_FLAG_AM_SHORT | request, 0, NULL, "short"},
                               {MEDIUM, (gex_AM_Fn_t)ignore_payload, GEX_FLAG_AM_MEDIUM | request, 0, NULL, "medium"},
                               {LONG, (gex_AM_Fn_t)ignore_payload, GEX_FLAG_AM_LONG | request, 0, NULL, "long"},
                               {TWICE, (gex_AM_Fn_t)reply_twice, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQREP, 0, NULL, "twice"},
                               {ASK, (gex_AM_Fn_t)ask, GEX_FLAG_AM_SHORT | request, 0, NULL, "ask"},
                               {REPLY, (gex_AM_Fn_t)ignore, GEX_FLAG_AM_SHORT | reply, 0, NULL, "reply"},
                               {PUT, (gex_AM_Fn_t)put, GEX_FLAG_AM_SHORT | request, 0, NULL, "put"},
                               {POLL, (gex_AM_Fn_t)poll, GEX_FLAG_AM_SHORT | request, 0, NULL, "poll"},
                               {IN_REPLY, (gex_AM_Fn_t)answer_by_reply, GEX_FLAG_AM_SHORT | request, 0, NULL, "answer"},
                               {BARRIER, (gex_AM_Fn_t)notify, GEX_FLAG_AM_SHORT | request, 0, NULL, "barrier"},
                               {WAIT, (gex_AM_Fn_t)wait_for_puts, GEX_FLAG_AM_SHORT | request, 0, NULL, "wait"},
                               {PREPARE, (gex_AM_Fn_t)prepare, GEX_FLAG_AM_SHORT | request, 0, NULL, "prepare"},
                               {ARRAY, (gex_AM_Fn_t)put_array_in_handler, GEX_FLAG_AM_SHORT | request, 0, NULL, "array"}};
  const char *const wanted = argc > 1 ? argv[1] : "";
  EARLY_CASES(DO)
  CHECK_EQ(gex_Client_Init(&client, &ep, &team, "BAD", &argc, &argv, 0), GASNET_OK);
  me = gex_TM_QueryRank(team);
  check_rank = (int)me;
  if (me == 0) {
    UNATTACHED_CASES(DO)
  }
  CHECK_EQ(gex_EP_RegisterHandlers(ep, handlers, sizeof(handlers) / sizeof(handlers[0])), GASNET_OK);
  CHECK_EQ(gex_Segment_Attach(&segment, team, GASNET_PAGESIZE), GASNET_OK);
  size = gex_TM_QuerySize(team);
  {
    gex_Rank_t rank;
    for (rank = 0; rank < size; ++rank) {
      void *owner = NULL;
      gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, NULL, NULL, 0));
      base[rank] = (char *)owner;
    }
  }
  gex_TM_Split(&own, team, (int)me, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
  gex_AD_Create(&words_of_job, team, GEX_DT_U64, GEX_OP_ADD | GEX_OP_FADD, 0);
  barrier();
  if (me == 0) {
    CASES(DO)
    /* The bad call should have ended the job. */
    gasnet_AMPoll();
    gasnet_exit(CHECK_FAILED);
  }
  barrier();
  return 0;
}
