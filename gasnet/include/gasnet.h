/* GASNet-1 on Conduit: a layer over GASNet-EX. */
#ifndef CONDUIT_GASNET_H
#define CONDUIT_GASNET_H
/* Clients check this macro to see whether the header has been included. */
#define _INCLUDED_GASNET_H 1

#include <gasnetex.h>

#include <conduit_gex/am1.h>
#include <conduit_gex/vis1.h>
#include <gasnet_vis.h>

/* The specification's major version. */
#define GASNET_VERSION GASNET_SPEC_VERSION_MAJOR

/* An internal GASNet name that some clients use. */
#define gasneti_mynode (gex_System_QueryJobRank())

typedef gex_Event_t gasnet_handle_t;
#define GASNET_INVALID_HANDLE ((gasnet_handle_t)0)

typedef gex_RMA_Value_t gasnet_register_value_t;
#define SIZEOF_GASNET_REGISTER_VALUE_T SIZEOF_GEX_RMA_VALUE_T

typedef struct {
  gasnet_handler_t index;
  gex_AM_Fn_t fnptr;
} gasnet_handlerentry_t;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- job ---- */

CONDUIT_GEX_INLINE int gasnet_init(int *argc_, char ***argv_) {
  return conduit_gasnet_init(argc_, argv_, &conduit_gex_config);
}

int gasnet_attach(gasnet_handlerentry_t *table, int count, uintptr_t segment_size, uintptr_t least_heap_offset);
void gasnet_QueryGexObjects(gex_Client_t *client, gex_EP_t *ep, gex_TM_t *tm, gex_Segment_t *segment);

CONDUIT_GEX_INLINE gasnet_node_t gasnet_mynode(void) { return gex_System_QueryJobRank(); }
CONDUIT_GEX_INLINE gasnet_node_t gasnet_nodes(void) { return gex_System_QueryJobSize(); }

int gasnet_getSegmentInfo(gasnet_seginfo_t *table, int count);
int gasnet_getNodeInfo(gasnet_nodeinfo_t *table, int count);

/* ---- active messages ---- */

int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *source);

CONDUIT_GEX_INLINE size_t gasnet_AMMaxArgs(void) { return gex_AM_MaxArgs(); }

CONDUIT_GEX_INLINE size_t gasnet_AMMaxMedium(void) {
  const size_t request_ = gex_AM_LUBRequestMedium();
  const size_t reply_ = gex_AM_LUBReplyMedium();
  return request_ < reply_ ? request_ : reply_;
}

CONDUIT_GEX_INLINE size_t gasnet_AMMaxLongRequest(void) { return gex_AM_LUBRequestLong(); }
CONDUIT_GEX_INLINE size_t gasnet_AMMaxLongReply(void) { return gex_AM_LUBReplyLong(); }

/* ---- atomicity ---- */

/* These macros do nothing, because the library uses no interrupts. */
#define gasnet_hold_interrupts() ((void)0)
#define gasnet_resume_interrupts() ((void)0)

typedef gex_HSL_t gasnet_hsl_t;
#define GASNET_HSL_INITIALIZER GEX_HSL_INITIALIZER
#define gasnet_hsl_init gex_HSL_Init
#define gasnet_hsl_destroy gex_HSL_Destroy
#define gasnet_hsl_lock gex_HSL_Lock
#define gasnet_hsl_unlock gex_HSL_Unlock
#define gasnet_hsl_trylock gex_HSL_Trylock

/* ---- blocking puts and gets ---- */

CONDUIT_GEX_INLINE void gasnet_put(gasnet_node_t node_, void *destination_, void *source_, size_t bytes_) {
  (void)gex_RMA_PutBlocking(CONDUIT_GEX_TEAM, node_, destination_, source_, bytes_, 0);
}

CONDUIT_GEX_INLINE void gasnet_get(void *destination_, gasnet_node_t node_, void *source_, size_t bytes_) {
  (void)gex_RMA_GetBlocking(CONDUIT_GEX_TEAM, destination_, node_, source_, bytes_, 0);
}

/* The bulk forms are the same functions, because the plain forms do not rely on alignment
 * either. */
#define gasnet_put_bulk gasnet_put
#define gasnet_get_bulk gasnet_get

void gasnet_memset(gasnet_node_t node, void *destination, int byte, size_t bytes);

CONDUIT_GEX_INLINE void gasnet_put_val(gasnet_node_t node_, void *destination_, gasnet_register_value_t value_,
                                       size_t bytes_) {
  (void)gex_RMA_PutBlockingVal(CONDUIT_GEX_TEAM, node_, destination_, value_, bytes_, 0);
}

CONDUIT_GEX_INLINE gasnet_register_value_t gasnet_get_val(gasnet_node_t node_, void *source_, size_t bytes_) {
  return gex_RMA_GetBlockingVal(CONDUIT_GEX_TEAM, node_, source_, bytes_, 0);
}

/* ---- explicit handles ---- */

CONDUIT_GEX_INLINE gasnet_handle_t gasnet_put_nb(gasnet_node_t node_, void *destination_, void *source_,
                                                 size_t bytes_) {
  return gex_RMA_PutNB(CONDUIT_GEX_TEAM, node_, destination_, source_, bytes_, GEX_EVENT_NOW, 0);
}

CONDUIT_GEX_INLINE gasnet_handle_t gasnet_put_nb_bulk(gasnet_node_t node_, void *destination_, void *source_,
                                                      size_t bytes_) {
  return gex_RMA_PutNB(CONDUIT_GEX_TEAM, node_, destination_, source_, bytes_, GEX_EVENT_DEFER, 0);
}

CONDUIT_GEX_INLINE gasnet_handle_t gasnet_get_nb(void *destination_, gasnet_node_t node_, void *source_,
                                                 size_t bytes_) {
  return gex_RMA_GetNB(CONDUIT_GEX_TEAM, destination_, node_, source_, bytes_, 0);
}

#define gasnet_get_nb_bulk gasnet_get_nb

CONDUIT_GEX_INLINE gasnet_handle_t gasnet_memset_nb(gasnet_node_t node_, void *destination_, int byte_,
                                                    size_t bytes_) {
  return conduit_gex_memset_nb(node_, destination_, byte_, bytes_);
}

CONDUIT_GEX_INLINE gasnet_handle_t gasnet_put_nb_val(gasnet_node_t node_, void *destination_,
                                                     gasnet_register_value_t value_, size_t bytes_) {
  return gex_RMA_PutNBVal(CONDUIT_GEX_TEAM, node_, destination_, value_, bytes_, 0);
}

CONDUIT_GEX_INLINE void gasnet_wait_syncnb(gasnet_handle_t handle_) { gex_Event_Wait(handle_); }

CONDUIT_GEX_INLINE void gasnet_wait_syncnb_some(gasnet_handle_t *handles_, size_t count_) {
  gex_Event_WaitSome(handles_, count_, 0);
}

CONDUIT_GEX_INLINE void gasnet_wait_syncnb_all(gasnet_handle_t *handles_, size_t count_) {
  gex_Event_WaitAll(handles_, count_, 0);
}

/* The nopoll forms test without polling; the others poll first. */

CONDUIT_GEX_INLINE int gasnet_try_syncnb_nopoll(gasnet_handle_t handle_) { return gex_Event_Test(handle_); }

CONDUIT_GEX_INLINE int gasnet_try_syncnb_some_nopoll(gasnet_handle_t *handles_, size_t count_) {
  return gex_Event_TestSome(handles_, count_, 0);
}

CONDUIT_GEX_INLINE int gasnet_try_syncnb_all_nopoll(gasnet_handle_t *handles_, size_t count_) {
  return gex_Event_TestAll(handles_, count_, 0);
}

CONDUIT_GEX_INLINE int gasnet_try_syncnb(gasnet_handle_t handle_) {
  (void)gasnet_AMPoll();
  return gex_Event_Test(handle_);
}

CONDUIT_GEX_INLINE int gasnet_try_syncnb_some(gasnet_handle_t *handles_, size_t count_) {
  (void)gasnet_AMPoll();
  return gex_Event_TestSome(handles_, count_, 0);
}

CONDUIT_GEX_INLINE int gasnet_try_syncnb_all(gasnet_handle_t *handles_, size_t count_) {
  (void)gasnet_AMPoll();
  return gex_Event_TestAll(handles_, count_, 0);
}

/* ---- nonblocking gets of values ---- */

/* The value of a get if it has arrived, and otherwise the library's state of the get. */
typedef struct {
  gasnet_register_value_t value;
  struct conduit_gex_valget_s *pending;
} gasnet_valget_handle_t;

gasnet_valget_handle_t conduit_gasnet_get_nb_val(gasnet_node_t node, void *source, size_t bytes);
gasnet_register_value_t conduit_gasnet_wait_valget(struct conduit_gex_valget_s *pending);

CONDUIT_GEX_INLINE gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t node_, void *source_, size_t bytes_) {
  return conduit_gasnet_get_nb_val(node_, source_, bytes_);
}

CONDUIT_GEX_INLINE gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle_) {
  return handle_.pending ? conduit_gasnet_wait_valget(handle_.pending) : handle_.value;
}

/* ---- implicit handles ---- */

CONDUIT_GEX_INLINE void gasnet_put_nbi(gasnet_node_t node_, void *destination_, void *source_, size_t bytes_) {
  (void)gex_RMA_PutNBI(CONDUIT_GEX_TEAM, node_, destination_, source_, bytes_, GEX_EVENT_NOW, 0);
}

CONDUIT_GEX_INLINE void gasnet_put_nbi_bulk(gasnet_node_t node_, void *destination_, void *source_, size_t bytes_) {
  (void)gex_RMA_PutNBI(CONDUIT_GEX_TEAM, node_, destination_, source_, bytes_, GEX_EVENT_DEFER, 0);
}

CONDUIT_GEX_INLINE void gasnet_get_nbi(void *destination_, gasnet_node_t node_, void *source_, size_t bytes_) {
  (void)gex_RMA_GetNBI(CONDUIT_GEX_TEAM, destination_, node_, source_, bytes_, 0);
}

#define gasnet_get_nbi_bulk gasnet_get_nbi

void gasnet_memset_nbi(gasnet_node_t node, void *destination, int byte, size_t bytes);

CONDUIT_GEX_INLINE void gasnet_put_nbi_val(gasnet_node_t node_, void *destination_, gasnet_register_value_t value_,
                                           size_t bytes_) {
  (void)gex_RMA_PutNBIVal(CONDUIT_GEX_TEAM, node_, destination_, value_, bytes_, 0);
}

CONDUIT_GEX_INLINE void gasnet_wait_syncnbi_gets(void) { gex_NBI_Wait(GEX_EC_GET, 0); }
CONDUIT_GEX_INLINE void gasnet_wait_syncnbi_puts(void) { gex_NBI_Wait(GEX_EC_PUT, 0); }
CONDUIT_GEX_INLINE void gasnet_wait_syncnbi_all(void) { gex_NBI_Wait(GEX_EC_ALL, 0); }

CONDUIT_GEX_INLINE int gasnet_try_syncnbi_gets_nopoll(void) { return gex_NBI_Test(GEX_EC_GET, 0); }
CONDUIT_GEX_INLINE int gasnet_try_syncnbi_puts_nopoll(void) { return gex_NBI_Test(GEX_EC_PUT, 0); }
CONDUIT_GEX_INLINE int gasnet_try_syncnbi_all_nopoll(void) { return gex_NBI_Test(GEX_EC_ALL, 0); }

CONDUIT_GEX_INLINE int gasnet_try_syncnbi_gets(void) {
  (void)gasnet_AMPoll();
  return gex_NBI_Test(GEX_EC_GET, 0);
}

CONDUIT_GEX_INLINE int gasnet_try_syncnbi_puts(void) {
  (void)gasnet_AMPoll();
  return gex_NBI_Test(GEX_EC_PUT, 0);
}

CONDUIT_GEX_INLINE int gasnet_try_syncnbi_all(void) {
  (void)gasnet_AMPoll();
  return gex_NBI_Test(GEX_EC_ALL, 0);
}

CONDUIT_GEX_INLINE void gasnet_begin_nbi_accessregion(void) { gex_NBI_BeginAccessRegion(0); }
CONDUIT_GEX_INLINE gasnet_handle_t gasnet_end_nbi_accessregion(void) { return gex_NBI_EndAccessRegion(0); }

#ifdef __cplusplus
}
#endif

#endif
