/* GASNet-EX on Conduit.
 *
 * Every declared function is implemented. The functions cover clients, teams, endpoints,
 * segments, active messages with fixed and negotiated payload, puts and gets, events,
 * handler-safe locks, queries, barriers, broadcasts and reductions. Define one of GASNET_SEQ,
 * GASNET_PARSYNC and GASNET_PAR, and link the library of the same name. */
#ifndef CONDUIT_GASNETEX_H
#define CONDUIT_GASNETEX_H
/* Clients check this macro to see whether the header has been included. */
#define _INCLUDED_GASNETEX_H 1

/* These are more headers than needed here, because clients rely on those that GASNet's header
 * includes. */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/param.h>
#include <unistd.h>

#include <gasnet_config.h>

#include <conduit_gex/mode.h>

#include <gasnet_tools.h>

#include <gasnet_fwd.h>

#include <conduit_gex/am.h>
#include <conduit_gex/coll.h>
#include <conduit_gex/entries.h>
#include <conduit_gex/event.h>
#include <conduit_gex/hsl.h>
#include <conduit_gex/rma.h>

#define GASNET_PAGESIZE GASNETT_PAGESIZE

/* Macros of GASNet's configuration that clients use. */
#ifndef SIZEOF_INT
  #define SIZEOF_INT __SIZEOF_INT__
#endif

/* gasnet_init accepts null pointers. */
#define GASNET_NULL_ARGV_OK 1

/* The maximum number of client threads, as returned by gex_System_QueryMaxThreads: the library
 * sets no limit. Internal to GASNet, but used by clients. */
#if defined(GASNET_SEQ)
  #define GASNETI_MAX_THREADS 1
#else
  #define GASNETI_MAX_THREADS 0x7FFFFFFF
#endif

/* The library identifies threads itself at no cost, so the macros that pass a thread's identity
 * pass nothing. */
typedef void *gasnet_threadinfo_t;
#define GASNET_GET_THREADINFO() ((gasnet_threadinfo_t)NULL)
#define GASNET_POST_THREADINFO(info) ((void)(info))
#define GASNET_BEGIN_FUNCTION() ((void)0)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and the end ---- */

const char *gasnet_ErrorName(int code);
const char *gasnet_ErrorDesc(int code);
void gasnet_exit(int code) CONDUIT_GEX_NORETURN;
int gex_System_GetVerboseErrors(void);
void gex_System_SetVerboseErrors(int enable);

/* ---- environment ---- */

CONDUIT_GEX_INLINE char *gasnet_getenv(const char *name_) { return gasnett_getenv(name_); }

/* ---- client ---- */

CONDUIT_GEX_INLINE int gex_Client_Init(gex_Client_t *client_, gex_EP_t *ep_, gex_TM_t *tm_, const char *name_,
                                       int *argc_, char ***argv_, gex_Flags_t flags_) {
  return conduit_gex_client_init(client_, ep_, tm_, name_, argc_, argv_, flags_, &conduit_gex_config);
}

gex_Flags_t gex_Client_QueryFlags(gex_Client_t client);
const char *gex_Client_QueryName(gex_Client_t client);
void gex_Client_SetCData(gex_Client_t client, const void *value);
void *gex_Client_QueryCData(gex_Client_t client);

/* ---- endpoint ---- */

int gex_EP_Create(gex_EP_t *ep, gex_Client_t client, gex_EP_Capabilities_t capabilities, gex_Flags_t flags);
/* Puts and gets reach the segment of an additional endpoint through gex_TM_Pair, once the
 * segment has been published. Publishing is collective and waits for all ranks of the team. */
int gex_EP_BindSegment(gex_EP_t ep, gex_Segment_t segment, gex_Flags_t flags);
int gex_EP_PublishBoundSegment(gex_TM_t tm, gex_EP_t *eps, size_t count, gex_Flags_t flags);
int gex_EP_RegisterHandlers(gex_EP_t ep, gex_AM_Entry_t *table, size_t count);
gex_Client_t gex_EP_QueryClient(gex_EP_t ep);
gex_Flags_t gex_EP_QueryFlags(gex_EP_t ep);
gex_Segment_t gex_EP_QuerySegment(gex_EP_t ep);
gex_EP_Index_t gex_EP_QueryIndex(gex_EP_t ep);
void gex_EP_SetCData(gex_EP_t ep, const void *value);
void *gex_EP_QueryCData(gex_EP_t ep);

CONDUIT_GEX_INLINE gex_Event_t gex_EP_QueryBoundSegmentNB(gex_TM_t tm_, gex_Rank_t rank_, void **owner_,
                                                          void **local_, uintptr_t *size_, gex_Flags_t flags_) {
  return conduit_gex_query_bound_nb(tm_, rank_, owner_, local_, size_, flags_);
}

/* ---- segment ---- */

/* The value of GASNET_MAX_SEGSIZE if the environment does not set it. Null stands for the
 * library's own default. A client may assign to this variable or define it. */
extern const char *gasnet_max_segsize_str;
/* The same in bytes per process, used if gasnet_max_segsize_str is null; 0 stands for no limit
 * by the client. Deprecated. */
extern uint64_t gasnet_max_segsize;
/* If this is not null, attach calls it with this rank's segment, before other ranks can reach
 * the segment and before a network registers it. The function may write to the segment, but must
 * not call GASNet. It is not called with segment everything. */
extern void (*gasnet_client_attach_hook)(void *address, uintptr_t bytes);

uintptr_t gasnet_getMaxLocalSegmentSize(void);
uintptr_t gasnet_getMaxGlobalSegmentSize(void);
int gex_Segment_Attach(gex_Segment_t *segment, gex_TM_t tm, uintptr_t size);
/* Creates a segment from the client's memory or, if the address is null, from memory that the
 * library maps. */
int gex_Segment_Create(gex_Segment_t *segment, gex_Client_t client, gex_Addr_t address, uintptr_t bytes, gex_MK_t kind,
                       gex_Flags_t flags);
void gex_Segment_Destroy(gex_Segment_t segment, gex_Flags_t flags);
gex_Client_t gex_Segment_QueryClient(gex_Segment_t segment);
gex_Flags_t gex_Segment_QueryFlags(gex_Segment_t segment);
void *gex_Segment_QueryAddr(gex_Segment_t segment);
uintptr_t gex_Segment_QuerySize(gex_Segment_t segment);
int gex_Segment_QueryBound(gex_TM_t tm, gex_Rank_t rank, void **owner, void **local, uintptr_t *size);
void gex_Segment_SetCData(gex_Segment_t segment, const void *value);
void *gex_Segment_QueryCData(gex_Segment_t segment);

/* ---- teams ---- */

/* Collective over the parent. A new team may be used at once. Operations use the library's
 * memory, so the team's scratch space is unused; gex_TM_Destroy returns it to the client. */
size_t gex_TM_Split(gex_TM_t *team, gex_TM_t parent, int color, int key, void *scratch, size_t scratch_bytes,
                    gex_Flags_t flags);
size_t gex_TM_Create(gex_TM_t *teams, size_t count, gex_TM_t parent, gex_EP_Location_t *members, size_t member_count,
                     gex_Addr_t *scratch, size_t scratch_bytes, gex_Flags_t flags);
int gex_TM_Destroy(gex_TM_t tm, gex_Memvec_t *scratch, gex_Flags_t flags);
/* Names a local and a remote endpoint, for puts and gets. Ranks passed with a pair are ranks of
 * the job. */
gex_TM_t gex_TM_Pair(gex_EP_t ep, gex_EP_Index_t remote);

gex_Client_t gex_TM_QueryClient(gex_TM_t tm);
gex_EP_t gex_TM_QueryEP(gex_TM_t tm);
gex_Flags_t gex_TM_QueryFlags(gex_TM_t tm);
gex_Rank_t gex_TM_QueryRank(gex_TM_t tm);
gex_Rank_t gex_TM_QuerySize(gex_TM_t tm);
gex_Rank_t gex_TM_TranslateRankToJobrank(gex_TM_t tm, gex_Rank_t rank);
gex_Rank_t gex_TM_TranslateJobrankToRank(gex_TM_t tm, gex_Rank_t jobrank);
gex_EP_Location_t gex_TM_TranslateRankToEP(gex_TM_t tm, gex_Rank_t rank, gex_Flags_t flags);
void gex_TM_SetCData(gex_TM_t tm, const void *value);
void *gex_TM_QueryCData(gex_TM_t tm);

/* ---- active messages ---- */

int gasnet_AMPoll(void);

unsigned int gex_AM_MaxArgs(void);
size_t gex_AM_LUBRequestMedium(void);
size_t gex_AM_LUBReplyMedium(void);
size_t gex_AM_LUBRequestLong(void);
size_t gex_AM_LUBReplyLong(void);
size_t gex_AM_MaxRequestMedium(gex_TM_t tm, gex_Rank_t rank, const gex_Event_t *local, gex_Flags_t flags,
                               unsigned int nargs);
size_t gex_AM_MaxReplyMedium(gex_TM_t tm, gex_Rank_t rank, const gex_Event_t *local, gex_Flags_t flags,
                             unsigned int nargs);
size_t gex_AM_MaxRequestLong(gex_TM_t tm, gex_Rank_t rank, const gex_Event_t *local, gex_Flags_t flags,
                             unsigned int nargs);
size_t gex_AM_MaxReplyLong(gex_TM_t tm, gex_Rank_t rank, const gex_Event_t *local, gex_Flags_t flags,
                           unsigned int nargs);
size_t gex_Token_MaxReplyMedium(gex_Token_t token, const gex_Event_t *local, gex_Flags_t flags, unsigned int nargs);
size_t gex_Token_MaxReplyLong(gex_Token_t token, const gex_Event_t *local, gex_Flags_t flags, unsigned int nargs);

gex_TI_t gex_Token_Info(gex_Token_t token, gex_Token_Info_t *info, gex_TI_t mask);

CONDUIT_GEX_INLINE gex_AM_SrcDesc_t gex_AM_PrepareRequestMedium(gex_TM_t tm_, gex_Rank_t rank_, const void *client_,
                                                                size_t least_, size_t most_, gex_Event_t *local_,
                                                                gex_Flags_t flags_, unsigned int nargs_) {
  rank_ = conduit_gex_rank("gex_AM_PrepareRequestMedium", tm_, rank_);
  (void)nargs_;
  return conduit_gex_prepare_request(CONDUIT_GEX_REQUEST_MEDIUM, rank_, (void *)(uintptr_t)client_, least_, most_, NULL,
                                     local_, flags_);
}

CONDUIT_GEX_INLINE gex_AM_SrcDesc_t gex_AM_PrepareReplyMedium(gex_Token_t token_, const void *client_, size_t least_,
                                                              size_t most_, gex_Event_t *local_, gex_Flags_t flags_,
                                                              unsigned int nargs_) {
  (void)nargs_;
  return conduit_gex_prepare_reply(CONDUIT_GEX_REPLY_MEDIUM, token_, (void *)(uintptr_t)client_, least_, most_, NULL,
                                   local_, flags_);
}

CONDUIT_GEX_INLINE gex_AM_SrcDesc_t gex_AM_PrepareRequestLong(gex_TM_t tm_, gex_Rank_t rank_, const void *client_,
                                                              size_t least_, size_t most_, void *destination_,
                                                              gex_Event_t *local_, gex_Flags_t flags_,
                                                              unsigned int nargs_) {
  rank_ = conduit_gex_rank("gex_AM_PrepareRequestLong", tm_, rank_);
  (void)nargs_;
  return conduit_gex_prepare_request(CONDUIT_GEX_REQUEST_LONG, rank_, (void *)(uintptr_t)client_, least_, most_,
                                     destination_, local_, flags_);
}

CONDUIT_GEX_INLINE gex_AM_SrcDesc_t gex_AM_PrepareReplyLong(gex_Token_t token_, const void *client_, size_t least_,
                                                            size_t most_, void *destination_, gex_Event_t *local_,
                                                            gex_Flags_t flags_, unsigned int nargs_) {
  (void)nargs_;
  return conduit_gex_prepare_reply(CONDUIT_GEX_REPLY_LONG, token_, (void *)(uintptr_t)client_, least_, most_,
                                   destination_, local_, flags_);
}

void *gex_AM_SrcDescAddr(gex_AM_SrcDesc_t descriptor);
size_t gex_AM_SrcDescSize(gex_AM_SrcDesc_t descriptor);

CONDUIT_GEX_INLINE int gex_AM_CancelRequestMedium(gex_AM_SrcDesc_t descriptor_, gex_Flags_t flags_) {
  (void)flags_;
  return conduit_gex_cancel(CONDUIT_GEX_REQUEST_MEDIUM, descriptor_);
}

CONDUIT_GEX_INLINE int gex_AM_CancelRequestLong(gex_AM_SrcDesc_t descriptor_, gex_Flags_t flags_) {
  (void)flags_;
  return conduit_gex_cancel(CONDUIT_GEX_REQUEST_LONG, descriptor_);
}

CONDUIT_GEX_INLINE int gex_AM_CancelReplyMedium(gex_AM_SrcDesc_t descriptor_, gex_Flags_t flags_) {
  (void)flags_;
  return conduit_gex_cancel(CONDUIT_GEX_REPLY_MEDIUM, descriptor_);
}

CONDUIT_GEX_INLINE int gex_AM_CancelReplyLong(gex_AM_SrcDesc_t descriptor_, gex_Flags_t flags_) {
  (void)flags_;
  return conduit_gex_cancel(CONDUIT_GEX_REPLY_LONG, descriptor_);
}

/* ---- the system ---- */

gex_Rank_t gex_System_QueryJobRank(void);
gex_Rank_t gex_System_QueryJobSize(void);
uint64_t gex_System_QueryMaxThreads(void);
int gex_System_QueryHiddenAMConcurrencyLevel(void);
void gex_System_QueryNbrhdInfo(gex_RankInfo_t **info, gex_Rank_t *count, gex_Rank_t *mine);
void gex_System_QueryHostInfo(gex_RankInfo_t **info, gex_Rank_t *count, gex_Rank_t *mine);
void gex_System_QueryMyPosition(gex_Rank_t *neighbourhoods, gex_Rank_t *neighbourhood, gex_Rank_t *hosts,
                                gex_Rank_t *host);
/* Returns the list of threads that a client with GEX_FLAG_DEFER_THREADS must start for the
 * library. The list is empty, because the library starts its own threads. */
int gex_System_QueryProgressThreads(gex_Client_t client, unsigned int *count, const gex_ProgressThreadInfo_t **info,
                                    gex_Flags_t flags);
int gasnet_set_waitmode(int mode);

#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2

/* Polls until the condition, which handlers make true, holds. Spins, yields or sleeps between
 * polls. */
#define GASNET_BLOCKUNTIL(condition)                             \
  do {                                                           \
    uint64_t conduit_gex_waiter = 0;                             \
    while (!(condition)) conduit_gex_wait_step(&conduit_gex_waiter); \
    __atomic_thread_fence(__ATOMIC_ACQUIRE);                     \
  } while (0)

/* ---- barriers ---- */

#define GASNET_BARRIERFLAG_ANONYMOUS 1
#define GASNET_BARRIERFLAG_MISMATCH 2
#define GASNET_BARRIERFLAG_UNNAMED 4

void gasnet_barrier_notify(int id, int flags);
int gasnet_barrier_wait(int id, int flags);
int gasnet_barrier_try(int id, int flags);
int gasnet_barrier(int id, int flags);
int gasnet_barrier_result(int *id);

CONDUIT_GEX_INLINE gex_Event_t gex_Coll_BarrierNB(gex_TM_t tm_, gex_Flags_t flags_) {
  return conduit_gex_barrier(tm_, flags_);
}

void gex_Coll_BarrierBlocking(gex_TM_t tm, gex_Flags_t flags);

/* ---- flow control ---- */

/* The number of credits available for requests to a rank, the number of requests to the rank
 * that had to wait for credits, the number of credits that the rank has revoked, and the number
 * of credits in this rank's bank. */
uint32_t gasnet_send_credits(gex_Rank_t peer);
uint64_t gasnet_credit_stalls(gex_Rank_t peer);
uint64_t gasnet_revoked_credits(gex_Rank_t peer);
uint32_t gasnet_banked_credits(void);

#ifdef __cplusplus
}
#endif

#endif
