/* GASNet-1's active messages: a function for each argument count, and functions that take the
 * count as an argument. */
#ifndef CONDUIT_GEX_AM1_H
#define CONDUIT_GEX_AM1_H

#include <stdarg.h>

#include <conduit_gex/am.h>

typedef gex_Rank_t gasnet_node_t;
typedef gex_AM_Index_t gasnet_handler_t;
typedef gex_AM_Arg_t gasnet_handlerarg_t;
typedef gex_Token_t gasnet_token_t;

#ifdef __cplusplus
extern "C" {
#endif

int conduit_gasnet_request_long_async(gasnet_node_t node, gasnet_handler_t handler, const void *source, size_t bytes,
                                      void *destination, uint32_t count, const gex_AM_Arg_t *words);

/* Defines all functions for one argument count. These functions return error codes. */
#define CONDUIT_GEX_FAMILY1(n) \
  CONDUIT_GEX_INLINE int gasnet_AMRequestShort##n( \
      gasnet_node_t node_, gasnet_handler_t handler_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_request_short(node_, handler_, CONDUIT_GEX_RETURN_ERRORS, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gasnet_AMRequestMedium##n( \
      gasnet_node_t node_, gasnet_handler_t handler_, void *source_, size_t bytes_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_request_medium(node_, handler_, source_, bytes_, GEX_EVENT_NOW, CONDUIT_GEX_RETURN_ERRORS, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gasnet_AMRequestLong##n( \
      gasnet_node_t node_, gasnet_handler_t handler_, void *source_, size_t bytes_, void *destination_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_request_long(node_, handler_, source_, bytes_, destination_, GEX_EVENT_NOW, CONDUIT_GEX_RETURN_ERRORS, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gasnet_AMRequestLongAsync##n( \
      gasnet_node_t node_, gasnet_handler_t handler_, void *source_, size_t bytes_, void *destination_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gasnet_request_long_async(node_, handler_, source_, bytes_, destination_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gasnet_AMReplyShort##n( \
      gasnet_token_t token_, gasnet_handler_t handler_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_reply_short(token_, handler_, CONDUIT_GEX_RETURN_ERRORS, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gasnet_AMReplyMedium##n( \
      gasnet_token_t token_, gasnet_handler_t handler_, void *source_, size_t bytes_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_reply_medium(token_, handler_, source_, bytes_, GEX_EVENT_NOW, CONDUIT_GEX_RETURN_ERRORS, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gasnet_AMReplyLong##n( \
      gasnet_token_t token_, gasnet_handler_t handler_, void *source_, size_t bytes_, void *destination_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_reply_long(token_, handler_, source_, bytes_, destination_, GEX_EVENT_NOW, CONDUIT_GEX_RETURN_ERRORS, n, words_); \
  }

CONDUIT_GEX_FAMILY1(0)
CONDUIT_GEX_FAMILY1(1)
CONDUIT_GEX_FAMILY1(2)
CONDUIT_GEX_FAMILY1(3)
CONDUIT_GEX_FAMILY1(4)
CONDUIT_GEX_FAMILY1(5)
CONDUIT_GEX_FAMILY1(6)
CONDUIT_GEX_FAMILY1(7)
CONDUIT_GEX_FAMILY1(8)
CONDUIT_GEX_FAMILY1(9)
CONDUIT_GEX_FAMILY1(10)
CONDUIT_GEX_FAMILY1(11)
CONDUIT_GEX_FAMILY1(12)
CONDUIT_GEX_FAMILY1(13)
CONDUIT_GEX_FAMILY1(14)
CONDUIT_GEX_FAMILY1(15)
CONDUIT_GEX_FAMILY1(16)

/* ---- the count as an argument ---- */

/* Reads the `count_` arguments that follow the count. Returns 0 if the count is not from 0 to
 * 16, otherwise 1. */
CONDUIT_GEX_INLINE int conduit_gex_words(gex_AM_Arg_t words_[16], int count_, va_list list_) {
  int i_;
  if (count_ < 0 || count_ > 16) return 0;
  for (i_ = 0; i_ < count_; i_++) words_[i_] = va_arg(list_, gex_AM_Arg_t);
  for (; i_ < 16; i_++) words_[i_] = 0;
  return 1;
}

/* The body of a function whose last parameter is the argument count. Makes the call with the
 * arguments' words if the count is valid, and otherwise returns an error. */
#define CONDUIT_GEX_COUNTED(call)                       \
  gex_AM_Arg_t words_[16];                              \
  va_list list_;                                        \
  int got_;                                             \
  va_start(list_, count_);                              \
  got_ = conduit_gex_words(words_, count_, list_);      \
  va_end(list_);                                        \
  return got_ ? (call) : GASNET_ERR_BAD_ARG

CONDUIT_GEX_INLINE int gasnet_AMRequestShort(gasnet_node_t node_, gasnet_handler_t handler_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gex_request_short(node_, handler_, CONDUIT_GEX_RETURN_ERRORS,
                      (uint32_t)count_, words_));
}

CONDUIT_GEX_INLINE int gasnet_AMRequestMedium(gasnet_node_t node_, gasnet_handler_t handler_, void *source_,
    size_t bytes_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gex_request_medium(node_, handler_, source_, bytes_, GEX_EVENT_NOW,
                      CONDUIT_GEX_RETURN_ERRORS, (uint32_t)count_, words_));
}

CONDUIT_GEX_INLINE int gasnet_AMRequestLong(gasnet_node_t node_, gasnet_handler_t handler_, void *source_,
    size_t bytes_, void *destination_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gex_request_long(node_, handler_, source_, bytes_, destination_,
                      GEX_EVENT_NOW, CONDUIT_GEX_RETURN_ERRORS, (uint32_t)count_, words_));
}

CONDUIT_GEX_INLINE int gasnet_AMRequestLongAsync(gasnet_node_t node_, gasnet_handler_t handler_, void
    *source_, size_t bytes_, void *destination_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gasnet_request_long_async(node_, handler_, source_, bytes_, destination_,
                      (uint32_t)count_, words_));
}

CONDUIT_GEX_INLINE int gasnet_AMReplyShort(gasnet_token_t token_, gasnet_handler_t handler_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gex_reply_short(token_, handler_, CONDUIT_GEX_RETURN_ERRORS, (uint32_t)count_, words_));
}

CONDUIT_GEX_INLINE int gasnet_AMReplyMedium(gasnet_token_t token_, gasnet_handler_t handler_, void *source_,
    size_t bytes_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gex_reply_medium(token_, handler_, source_, bytes_, GEX_EVENT_NOW,
                      CONDUIT_GEX_RETURN_ERRORS, (uint32_t)count_, words_));
}

CONDUIT_GEX_INLINE int gasnet_AMReplyLong(gasnet_token_t token_, gasnet_handler_t handler_, void *source_,
    size_t bytes_, void *destination_, int count_, ...) {
  CONDUIT_GEX_COUNTED(conduit_gex_reply_long(token_, handler_, source_, bytes_, destination_, GEX_EVENT_NOW,
                      CONDUIT_GEX_RETURN_ERRORS, (uint32_t)count_, words_));
}

#ifdef __cplusplus
}
#endif

#endif
