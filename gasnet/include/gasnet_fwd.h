/* Types and constants of GASNet-EX: everything that needs no function declarations.
 *
 * The values are this library's own, except where GASNet defines them (GEX_EVENT_INVALID is 0,
 * flags are bits). Values that Realm compares with its own copies are the same as GASNet's (data
 * types, GEX_OP_ADD, GEX_MK_HOST, capabilities, GEX_FLAG_IMMEDIATE, GEX_FLAG_AM_PREPARE_...). */
#ifndef CONDUIT_GASNET_FWD_H
#define CONDUIT_GASNET_FWD_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <gasnet_config.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ranks, flags ---- */

typedef uint32_t gex_Rank_t;
#define GEX_RANK_INVALID ((gex_Rank_t)0xFFFFFFFFU)

typedef uint32_t gex_Flags_t;

/* Flags of communication calls. */
#define GEX_FLAG_IMMEDIATE 0x00000001U
/* Hints and assertions without effect here. */
#define GEX_FLAG_LC_COPY_YES 0x00000002U
#define GEX_FLAG_LC_COPY_NO 0x00000004U
#define GEX_FLAG_PEER_NEVER_SELF 0x00000008U
#define GEX_FLAG_PEER_NEVER_NBRHD 0x00000010U
#define GEX_FLAG_SELF_SEG_UNKNOWN 0x00000020U
#define GEX_FLAG_SELF_SEG_SOME 0x00000040U
#define GEX_FLAG_SELF_SEG_BOUND 0x00000080U
#define GEX_FLAG_SELF_SEG_OFFSET 0x00000100U
#define GEX_FLAG_PEER_SEG_UNKNOWN 0x00000200U
#define GEX_FLAG_PEER_SEG_SOME 0x00000400U
#define GEX_FLAG_PEER_SEG_BOUND 0x00002000U
#define GEX_FLAG_PEER_SEG_OFFSET 0x00004000U
/* Flags of limit queries for negotiated payload. */
#define GEX_FLAG_AM_PREPARE_LEAST_CLIENT 0x00000800U
#define GEX_FLAG_AM_PREPARE_LEAST_ALLOC 0x00001000U
/* Flags of remote atomics and collectives. */
#define GEX_FLAG_RANK_IS_JOBRANK 0x00008000U
#define GEX_FLAG_SCRATCH_SEG_OFFSET 0x00010000U
#define GEX_FLAG_ENABLE_LEAF_LC 0x00020000U
/* Flags of calls that create and destroy teams. */
#define GEX_FLAG_TM_NO_SCRATCH 0x00040000U
#define GEX_FLAG_TM_LOCAL_SCRATCH 0x00080000U
#define GEX_FLAG_TM_GLOBAL_SCRATCH 0x00400000U
#define GEX_FLAG_TM_SYMMETRIC_SCRATCH 0x00800000U
#define GEX_FLAG_TM_SCRATCH_SIZE_MIN 0x01000000U
#define GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED 0x02000000U
#define GEX_FLAG_GLOBALLY_QUIESCED 0x04000000U
/* Flags of operations of an atomic domain. */
#define GEX_FLAG_AD_MY_RANK 0x01000000U
#define GEX_FLAG_AD_MY_NBRHD 0x02000000U
#define GEX_FLAG_AD_ACQ 0x04000000U
#define GEX_FLAG_AD_REL 0x08000000U
/* Flags of gex_AD_Create: hints without effect here. */
#define GEX_FLAG_AD_FAVOR_MY_RANK 0x10000000U
#define GEX_FLAG_AD_FAVOR_MY_NBRHD 0x20000000U
#define GEX_FLAG_AD_FAVOR_REMOTE 0x40000000U
/* Flags of gex_Client_Init. */
#define GEX_FLAG_USES_GASNET1 0x00100000U
#define GEX_FLAG_DEFER_THREADS 0x00200000U

/* Flags of a handler, in its table entry. */
#define GEX_FLAG_AM_SHORT 0x00000001U
#define GEX_FLAG_AM_MEDIUM 0x00000002U
#define GEX_FLAG_AM_LONG 0x00000004U
#define GEX_FLAG_AM_MEDLONG (GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_LONG)
#define GEX_FLAG_AM_REQUEST 0x00000008U
#define GEX_FLAG_AM_REPLY 0x00000010U
#define GEX_FLAG_AM_REQREP (GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_REPLY)

/* ---- objects ---- */

typedef struct conduit_gex_client_s *gex_Client_t;
typedef struct conduit_gex_ep_s *gex_EP_t;
typedef struct conduit_gex_tm_s *gex_TM_t;
typedef struct conduit_gex_segment_s *gex_Segment_t;
typedef uint16_t gex_EP_Index_t;

/* The rank that owns an endpoint, and the endpoint's index. */
typedef struct {
  gex_Rank_t gex_rank;
  gex_EP_Index_t gex_ep_index;
} gex_EP_Location_t;

#define GEX_CLIENT_INVALID ((gex_Client_t)(uintptr_t)0)
#define GEX_EP_INVALID ((gex_EP_t)(uintptr_t)0)
#define GEX_TM_INVALID ((gex_TM_t)(uintptr_t)0)
#define GEX_SEGMENT_INVALID ((gex_Segment_t)(uintptr_t)0)

/* The maximum number of endpoints of a process: the first, and additional ones for puts and
 * gets. */
#define GASNET_MAXEPS 32

/* The capabilities of endpoints: the first has all of them, others only GEX_EP_CAPABILITY_RMA. */
typedef uint32_t gex_EP_Capabilities_t;
#define GEX_EP_CAPABILITY_RMA 0x01U
#define GEX_EP_CAPABILITY_AM 0x02U
#define GEX_EP_CAPABILITY_VIS 0x04U
#define GEX_EP_CAPABILITY_COLL 0x08U
#define GEX_EP_CAPABILITY_AD 0x10U
#define GEX_EP_CAPABILITY_ALL 0x1FU
/* Hints without effect here. */
#define GEX_FLAG_HINT_ACCEL_AD 0x01U
#define GEX_FLAG_HINT_ACCEL_COLL 0x02U
#define GEX_FLAG_HINT_ACCEL_ALL 0x03U

/* Memory kinds. */
typedef struct conduit_gex_mk_s *gex_MK_t;
#define GEX_MK_INVALID ((gex_MK_t)(uintptr_t)0)
#define GEX_MK_HOST ((gex_MK_t)(uintptr_t)1)
/* Host memory is the only supported class of memory kinds. The corresponding macros for devices
 * are not defined. */
#define GASNET_HAVE_MK_CLASS_HOST 1

/* ---- active messages ---- */

typedef uint8_t gex_AM_Index_t;
typedef int32_t gex_AM_Arg_t;
typedef struct conduit_gex_token_s *gex_Token_t;
typedef struct conduit_gex_srcdesc_s *gex_AM_SrcDesc_t;

#define GEX_AM_INDEX_BASE 128
#define GEX_AM_SRCDESC_NO_OP ((gex_AM_SrcDesc_t)(uintptr_t)0)

/* A handler with any parameters, which C expresses by an empty list. */
#ifdef __cplusplus
typedef void (*gex_AM_Fn_t)(void);
#else
  #pragma GCC diagnostic push
  #pragma GCC diagnostic ignored "-Wstrict-prototypes"
typedef void (*gex_AM_Fn_t)();
  #pragma GCC diagnostic pop
#endif

typedef struct {
  gex_AM_Index_t gex_index;
  gex_AM_Fn_t gex_fnptr;
  gex_Flags_t gex_flags;
  unsigned int gex_nargs;
  const void *gex_cdata;
  const char *gex_name;
} gex_AM_Entry_t;

/* Fields of gex_Token_Info_t. */
typedef unsigned int gex_TI_t;
#define GEX_TI_SRCRANK 0x01U
#define GEX_TI_EP 0x02U
#define GEX_TI_ENTRY 0x04U
#define GEX_TI_IS_REQ 0x08U
#define GEX_TI_IS_LONG 0x10U
#define GEX_TI_ALL 0x1FU
#define GASNET_SUPPORTS_TI_SRCRANK 1
#define GASNET_SUPPORTS_TI_EP 1
#define GASNET_SUPPORTS_TI_ENTRY 1
#define GASNET_SUPPORTS_TI_IS_REQ 1
#define GASNET_SUPPORTS_TI_IS_LONG 1

typedef struct {
  gex_Rank_t gex_srcrank;
  gex_EP_t gex_ep;
  const gex_AM_Entry_t *gex_entry;
  int gex_is_req;
  int gex_is_long;
} gex_Token_Info_t;

/* Extensions of negotiated payload. The numbers are the dates of their specification. */
#define GASNET_SUPPORTS_AM_CANCEL 20240418L
#define GASNET_SUPPORTS_AM_COMMIT_V2 20240906L
/* Mediums are written where they are sent from. Longs are written at their destination if it is
 * mapped and named in the prepare call. */
#define GASNET_NATIVE_NP_ALLOC_REQ_MEDIUM 1
#define GASNET_NATIVE_NP_ALLOC_REP_MEDIUM 1
#define GASNET_NATIVE_NP_ALLOC_REQ_LONG 1
#define GASNET_NATIVE_NP_ALLOC_REP_LONG 1

/* ---- events ---- */

typedef struct conduit_gex_event_s *gex_Event_t;

#define GEX_EVENT_INVALID ((gex_Event_t)(uintptr_t)0)
#define GEX_EVENT_NO_OP ((gex_Event_t)(uintptr_t)1)
#define GEX_EVENT_NOW ((gex_Event_t *)(uintptr_t)1)
#define GEX_EVENT_DEFER ((gex_Event_t *)(uintptr_t)2)
#define GEX_EVENT_GROUP ((gex_Event_t *)(uintptr_t)3)

/* Categories of implicit operations, and of leaf events. */
typedef unsigned int gex_EC_t;
#define GEX_EC_GET 0x01U
#define GEX_EC_PUT 0x02U
#define GEX_EC_AM 0x04U
#define GEX_EC_LC 0x08U
#define GEX_EC_RMW 0x10U
#define GEX_EC_ALL 0x1FU

/* ---- data types and operations, of collectives and remote atomics ---- */

typedef unsigned int gex_DT_t;
#define GEX_DT_I32 0x01U
#define GEX_DT_U32 0x02U
#define GEX_DT_I64 0x04U
#define GEX_DT_U64 0x08U
#define GEX_DT_FLT 0x10U
#define GEX_DT_DBL 0x20U
#define GEX_DT_USER 0x40U

/* Operations and their fetching forms, one bit each. */
typedef unsigned int gex_OP_t;
#define GEX_OP_AND 0x00000001U
#define GEX_OP_OR 0x00000002U
#define GEX_OP_XOR 0x00000004U
#define GEX_OP_ADD 0x00000008U
#define GEX_OP_SUB 0x00000010U
#define GEX_OP_MULT 0x00000020U
#define GEX_OP_MIN 0x00000040U
#define GEX_OP_MAX 0x00000080U
#define GEX_OP_INC 0x00000100U
#define GEX_OP_DEC 0x00000200U
#define GEX_OP_SET 0x00000400U
#define GEX_OP_CAS 0x00000800U
#define GEX_OP_FAND 0x00002000U
#define GEX_OP_FOR 0x00004000U
#define GEX_OP_FXOR 0x00008000U
#define GEX_OP_FADD 0x00010000U
#define GEX_OP_FSUB 0x00020000U
#define GEX_OP_FMULT 0x00040000U
#define GEX_OP_FMIN 0x00080000U
#define GEX_OP_FMAX 0x00100000U
#define GEX_OP_FINC 0x00200000U
#define GEX_OP_FDEC 0x00400000U
#define GEX_OP_SWAP 0x00800000U
#define GEX_OP_FCAS 0x01000000U
#define GEX_OP_CSWAP GEX_OP_FCAS
#define GEX_OP_GET 0x02000000U
#define GEX_OP_USER 0x04000000U
#define GEX_OP_USER_NC 0x08000000U

/* Convert an operation to its fetching form and back. GEX_OP_GET converts back to a bit that
 * stands for no operation, because some clients index their own operations by these bits. */
#define GEX_OP_TO_FETCHING(op) ((op) << 13)
#define GEX_OP_TO_NONFETCHING(op) ((op) >> 13)

/* ---- values ---- */

typedef uint64_t gex_RMA_Value_t;
#define SIZEOF_GEX_RMA_VALUE_T 8

/* ---- ranks, hosts and threads ---- */

typedef struct {
  gex_Rank_t gex_jobrank;
} gex_RankInfo_t;

typedef void *gex_Addr_t;

typedef struct {
  void *gex_addr;
  size_t gex_len;
} gex_Memvec_t;

/* A thread that a client runs for the library. The client calls gex_progress_fn in a POSIX
 * thread. */
typedef struct {
  const char *gex_device_list;
  unsigned int gex_thread_roles;
  void *(*gex_progress_fn)(void *);
  void *gex_progress_arg;
} gex_ProgressThreadInfo_t;

#define GEX_THREAD_ROLE_RCV 0x01U
#define GEX_THREAD_ROLE_SND 0x02U

/* Handlers run only on the client's threads. */
#define GASNET_HIDDEN_AM_CONCURRENCY_LEVEL 0

/* ---- error codes ---- */

#define GASNET_OK 0
#define GASNET_ERR_NOT_INIT 10001
#define GASNET_ERR_RESOURCE 10002
#define GASNET_ERR_BAD_ARG 10003
#define GASNET_ERR_NOT_READY 10004
#define GASNET_ERR_BARRIER_MISMATCH 10005

/* ---- limits of the job ---- */

#define GASNET_MAXNODES 0x7FFFFFFF

/* A node's entry in a table of segments, and its entry in a table of nodes. */
typedef struct {
  void *addr;
  uintptr_t size;
} gasnet_seginfo_t;

typedef struct {
  gex_Rank_t host;
  gex_Rank_t supernode;
  /* The number to add to an address in that node's segment to get the address here, if the node
   * is mapped. */
  uintptr_t offset;
} gasnet_nodeinfo_t;

#ifdef __cplusplus
}
#endif

#endif
