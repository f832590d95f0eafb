/* Active messages with 0 to 16 arguments: a function for each argument count, and macros that
 * count the arguments.
 *
 * Every argument is a parameter of an inline function, so that it is evaluated once and
 * converted as in any C call. */
#ifndef CONDUIT_GEX_AM_H
#define CONDUIT_GEX_AM_H

#include <conduit_gex/entries.h>

/* ---- parameters and the words passed on, by count ---- */

#define CONDUIT_GEX_PARAMETERS_0
#define CONDUIT_GEX_PARAMETERS_1 , gex_AM_Arg_t a0_
#define CONDUIT_GEX_PARAMETERS_2 , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_
#define CONDUIT_GEX_PARAMETERS_3 , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_
#define CONDUIT_GEX_PARAMETERS_4 , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_
#define CONDUIT_GEX_PARAMETERS_5 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_
#define CONDUIT_GEX_PARAMETERS_6 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_
#define CONDUIT_GEX_PARAMETERS_7 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_
#define CONDUIT_GEX_PARAMETERS_8 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_
#define CONDUIT_GEX_PARAMETERS_9 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_
#define CONDUIT_GEX_PARAMETERS_10 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_
#define CONDUIT_GEX_PARAMETERS_11 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_, gex_AM_Arg_t a10_
#define CONDUIT_GEX_PARAMETERS_12 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_, gex_AM_Arg_t a10_, \
  gex_AM_Arg_t a11_
#define CONDUIT_GEX_PARAMETERS_13 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_, gex_AM_Arg_t a10_, \
  gex_AM_Arg_t a11_, gex_AM_Arg_t a12_
#define CONDUIT_GEX_PARAMETERS_14 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_, gex_AM_Arg_t a10_, \
  gex_AM_Arg_t a11_, gex_AM_Arg_t a12_, gex_AM_Arg_t a13_
#define CONDUIT_GEX_PARAMETERS_15 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_, gex_AM_Arg_t a10_, \
  gex_AM_Arg_t a11_, gex_AM_Arg_t a12_, gex_AM_Arg_t a13_, gex_AM_Arg_t a14_
#define CONDUIT_GEX_PARAMETERS_16 \
  , gex_AM_Arg_t a0_, gex_AM_Arg_t a1_, gex_AM_Arg_t a2_, gex_AM_Arg_t a3_, gex_AM_Arg_t a4_, gex_AM_Arg_t \
  a5_, gex_AM_Arg_t a6_, gex_AM_Arg_t a7_, gex_AM_Arg_t a8_, gex_AM_Arg_t a9_, gex_AM_Arg_t a10_, \
  gex_AM_Arg_t a11_, gex_AM_Arg_t a12_, gex_AM_Arg_t a13_, gex_AM_Arg_t a14_, gex_AM_Arg_t a15_

/* Without arguments the array holds a 0, because C has no empty arrays. */
#define CONDUIT_GEX_WORDS_0 0
#define CONDUIT_GEX_WORDS_1 a0_
#define CONDUIT_GEX_WORDS_2 a0_, a1_
#define CONDUIT_GEX_WORDS_3 a0_, a1_, a2_
#define CONDUIT_GEX_WORDS_4 a0_, a1_, a2_, a3_
#define CONDUIT_GEX_WORDS_5 a0_, a1_, a2_, a3_, a4_
#define CONDUIT_GEX_WORDS_6 a0_, a1_, a2_, a3_, a4_, a5_
#define CONDUIT_GEX_WORDS_7 a0_, a1_, a2_, a3_, a4_, a5_, a6_
#define CONDUIT_GEX_WORDS_8 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_
#define CONDUIT_GEX_WORDS_9 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_
#define CONDUIT_GEX_WORDS_10 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_
#define CONDUIT_GEX_WORDS_11 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_, a10_
#define CONDUIT_GEX_WORDS_12 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_, a10_, a11_
#define CONDUIT_GEX_WORDS_13 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_, a10_, a11_, a12_
#define CONDUIT_GEX_WORDS_14 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_, a10_, a11_, a12_, a13_
#define CONDUIT_GEX_WORDS_15 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_, a10_, a11_, a12_, a13_, a14_
#define CONDUIT_GEX_WORDS_16 a0_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, a9_, a10_, a11_, a12_, a13_, a14_, a15_

/* Defines the calls that send messages with a fixed payload and n arguments. */
#define CONDUIT_GEX_FIXED_FAMILY(n) \
  CONDUIT_GEX_INLINE int gex_AM_RequestShort##n( \
      gex_TM_t tm_, gex_Rank_t rank_, gex_AM_Index_t handler_, gex_Flags_t flags_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    rank_ = conduit_gex_rank("gex_AM_RequestShort", tm_, rank_); \
    return conduit_gex_request_short(rank_, handler_, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_RequestMedium##n( \
      gex_TM_t tm_, gex_Rank_t rank_, gex_AM_Index_t handler_, const void *source_, size_t bytes_, gex_Event_t \
      *local_, gex_Flags_t flags_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    rank_ = conduit_gex_rank("gex_AM_RequestMedium", tm_, rank_); \
    return conduit_gex_request_medium(rank_, handler_, source_, bytes_, local_, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_RequestLong##n( \
      gex_TM_t tm_, gex_Rank_t rank_, gex_AM_Index_t handler_, const void *source_, size_t bytes_, void \
      *destination_, gex_Event_t *local_, gex_Flags_t flags_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    rank_ = conduit_gex_rank("gex_AM_RequestLong", tm_, rank_); \
    return conduit_gex_request_long(rank_, handler_, source_, bytes_, destination_, local_, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_ReplyShort##n( \
      gex_Token_t token_, gex_AM_Index_t handler_, gex_Flags_t flags_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_reply_short(token_, handler_, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_ReplyMedium##n( \
      gex_Token_t token_, gex_AM_Index_t handler_, const void *source_, size_t bytes_, gex_Event_t *local_, \
      gex_Flags_t flags_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_reply_medium(token_, handler_, source_, bytes_, local_, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_ReplyLong##n( \
      gex_Token_t token_, gex_AM_Index_t handler_, const void *source_, size_t bytes_, void *destination_, \
      gex_Event_t *local_, gex_Flags_t flags_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_reply_long(token_, handler_, source_, bytes_, destination_, local_, flags_, n, words_); \
  }

/* Defines the calls that commit a negotiated payload with n arguments. */
#define CONDUIT_GEX_COMMIT_FAMILY(n) \
  CONDUIT_GEX_INLINE void gex_AM_CommitRequestMedium##n( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    (void)conduit_gex_commit(CONDUIT_GEX_REQUEST_MEDIUM, descriptor_, handler_, bytes_, NULL, 0, n, words_); \
  } \
  CONDUIT_GEX_INLINE void gex_AM_CommitRequestLong##n( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_, void *destination_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    (void)conduit_gex_commit(CONDUIT_GEX_REQUEST_LONG, descriptor_, handler_, bytes_, destination_, 0, n, words_); \
  } \
  CONDUIT_GEX_INLINE void gex_AM_CommitReplyMedium##n( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_ CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    (void)conduit_gex_commit(CONDUIT_GEX_REPLY_MEDIUM, descriptor_, handler_, bytes_, NULL, 0, n, words_); \
  } \
  CONDUIT_GEX_INLINE void gex_AM_CommitReplyLong##n( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_, void *destination_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    (void)conduit_gex_commit(CONDUIT_GEX_REPLY_LONG, descriptor_, handler_, bytes_, destination_, 0, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_CommitRequestMedium##n##_v2( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_, gex_Flags_t flags_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_commit(CONDUIT_GEX_REQUEST_MEDIUM, descriptor_, handler_, bytes_, NULL, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_CommitRequestLong##n##_v2( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_, void *destination_, gex_Flags_t flags_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_commit(CONDUIT_GEX_REQUEST_LONG, descriptor_, handler_, bytes_, destination_, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_CommitReplyMedium##n##_v2( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_, gex_Flags_t flags_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_commit(CONDUIT_GEX_REPLY_MEDIUM, descriptor_, handler_, bytes_, NULL, flags_, n, words_); \
  } \
  CONDUIT_GEX_INLINE int gex_AM_CommitReplyLong##n##_v2( \
      gex_AM_SrcDesc_t descriptor_, gex_AM_Index_t handler_, size_t bytes_, void *destination_, gex_Flags_t flags_ \
      CONDUIT_GEX_PARAMETERS_##n) { \
    const gex_AM_Arg_t words_[] = {CONDUIT_GEX_WORDS_##n}; \
    return conduit_gex_commit(CONDUIT_GEX_REPLY_LONG, descriptor_, handler_, bytes_, destination_, flags_, n, words_); \
  }

#ifdef __cplusplus
extern "C" {
#endif

CONDUIT_GEX_FIXED_FAMILY(0)
CONDUIT_GEX_COMMIT_FAMILY(0)
CONDUIT_GEX_FIXED_FAMILY(1)
CONDUIT_GEX_COMMIT_FAMILY(1)
CONDUIT_GEX_FIXED_FAMILY(2)
CONDUIT_GEX_COMMIT_FAMILY(2)
CONDUIT_GEX_FIXED_FAMILY(3)
CONDUIT_GEX_COMMIT_FAMILY(3)
CONDUIT_GEX_FIXED_FAMILY(4)
CONDUIT_GEX_COMMIT_FAMILY(4)
CONDUIT_GEX_FIXED_FAMILY(5)
CONDUIT_GEX_COMMIT_FAMILY(5)
CONDUIT_GEX_FIXED_FAMILY(6)
CONDUIT_GEX_COMMIT_FAMILY(6)
CONDUIT_GEX_FIXED_FAMILY(7)
CONDUIT_GEX_COMMIT_FAMILY(7)
CONDUIT_GEX_FIXED_FAMILY(8)
CONDUIT_GEX_COMMIT_FAMILY(8)
CONDUIT_GEX_FIXED_FAMILY(9)
CONDUIT_GEX_COMMIT_FAMILY(9)
CONDUIT_GEX_FIXED_FAMILY(10)
CONDUIT_GEX_COMMIT_FAMILY(10)
CONDUIT_GEX_FIXED_FAMILY(11)
CONDUIT_GEX_COMMIT_FAMILY(11)
CONDUIT_GEX_FIXED_FAMILY(12)
CONDUIT_GEX_COMMIT_FAMILY(12)
CONDUIT_GEX_FIXED_FAMILY(13)
CONDUIT_GEX_COMMIT_FAMILY(13)
CONDUIT_GEX_FIXED_FAMILY(14)
CONDUIT_GEX_COMMIT_FAMILY(14)
CONDUIT_GEX_FIXED_FAMILY(15)
CONDUIT_GEX_COMMIT_FAMILY(15)
CONDUIT_GEX_FIXED_FAMILY(16)
CONDUIT_GEX_COMMIT_FAMILY(16)

#ifdef __cplusplus
}
#endif

/* ---- calls without a count in the name: macros count the arguments after the fixed ones ---- */

#define CONDUIT_GEX_PASTE_(name, count, suffix) name##count##suffix
#define CONDUIT_GEX_PASTE(name, count, suffix) CONDUIT_GEX_PASTE_(name, count, suffix)

#define CONDUIT_GEX_PICK3( \
    x0_, x1_, x2_, x3_, x4_, x5_, x6_, x7_, x8_, x9_, x10_, x11_, x12_, x13_, x14_, x15_, x16_, x17_, x18_, \
    n_, ...) n_
#define CONDUIT_GEX_COUNT3(...) \
  CONDUIT_GEX_PICK3(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)
#define CONDUIT_GEX_PICK4( \
    x0_, x1_, x2_, x3_, x4_, x5_, x6_, x7_, x8_, x9_, x10_, x11_, x12_, x13_, x14_, x15_, x16_, x17_, x18_, \
    x19_, n_, ...) n_
#define CONDUIT_GEX_COUNT4(...) \
  CONDUIT_GEX_PICK4(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)
#define CONDUIT_GEX_PICK5( \
    x0_, x1_, x2_, x3_, x4_, x5_, x6_, x7_, x8_, x9_, x10_, x11_, x12_, x13_, x14_, x15_, x16_, x17_, x18_, \
    x19_, x20_, n_, ...) n_
#define CONDUIT_GEX_COUNT5(...) \
  CONDUIT_GEX_PICK5(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)
#define CONDUIT_GEX_PICK6( \
    x0_, x1_, x2_, x3_, x4_, x5_, x6_, x7_, x8_, x9_, x10_, x11_, x12_, x13_, x14_, x15_, x16_, x17_, x18_, \
    x19_, x20_, x21_, n_, ...) n_
#define CONDUIT_GEX_COUNT6(...) \
  CONDUIT_GEX_PICK6(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)
#define CONDUIT_GEX_PICK7( \
    x0_, x1_, x2_, x3_, x4_, x5_, x6_, x7_, x8_, x9_, x10_, x11_, x12_, x13_, x14_, x15_, x16_, x17_, x18_, \
    x19_, x20_, x21_, x22_, n_, ...) n_
#define CONDUIT_GEX_COUNT7(...) \
  CONDUIT_GEX_PICK7(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)
#define CONDUIT_GEX_PICK8( \
    x0_, x1_, x2_, x3_, x4_, x5_, x6_, x7_, x8_, x9_, x10_, x11_, x12_, x13_, x14_, x15_, x16_, x17_, x18_, \
    x19_, x20_, x21_, x22_, x23_, n_, ...) n_
#define CONDUIT_GEX_COUNT8(...) \
  CONDUIT_GEX_PICK8(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)

#define gex_AM_RequestShort(...) \
  CONDUIT_GEX_PASTE(gex_AM_RequestShort, CONDUIT_GEX_COUNT4(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_RequestMedium(...) \
  CONDUIT_GEX_PASTE(gex_AM_RequestMedium, CONDUIT_GEX_COUNT7(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_RequestLong(...) \
  CONDUIT_GEX_PASTE(gex_AM_RequestLong, CONDUIT_GEX_COUNT8(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_ReplyShort(...) \
  CONDUIT_GEX_PASTE(gex_AM_ReplyShort, CONDUIT_GEX_COUNT3(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_ReplyMedium(...) \
  CONDUIT_GEX_PASTE(gex_AM_ReplyMedium, CONDUIT_GEX_COUNT6(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_ReplyLong(...) \
  CONDUIT_GEX_PASTE(gex_AM_ReplyLong, CONDUIT_GEX_COUNT7(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitRequestMedium(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitRequestMedium, CONDUIT_GEX_COUNT3(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitRequestLong(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitRequestLong, CONDUIT_GEX_COUNT4(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitReplyMedium(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitReplyMedium, CONDUIT_GEX_COUNT3(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitReplyLong(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitReplyLong, CONDUIT_GEX_COUNT4(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitRequestMedium_v2(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitRequestMedium, CONDUIT_GEX_COUNT4(__VA_ARGS__), _v2)(__VA_ARGS__)
#define gex_AM_CommitRequestLong_v2(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitRequestLong, CONDUIT_GEX_COUNT5(__VA_ARGS__), _v2)(__VA_ARGS__)
#define gex_AM_CommitReplyMedium_v2(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitReplyMedium, CONDUIT_GEX_COUNT4(__VA_ARGS__), _v2)(__VA_ARGS__)
#define gex_AM_CommitReplyLong_v2(...) \
  CONDUIT_GEX_PASTE(gex_AM_CommitReplyLong, CONDUIT_GEX_COUNT5(__VA_ARGS__), _v2)(__VA_ARGS__)

#endif
