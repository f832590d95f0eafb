/* Puts and gets. For mapped ranks they are inline copies; the library does everything else. */
#ifndef CONDUIT_GEX_RMA_H
#define CONDUIT_GEX_RMA_H

#include <string.h>

#include <conduit_gex/entries.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the address at which a range of a rank's segment is mapped here. The rank must be in
 * the table. Returns 0 if the library must handle the range. */
CONDUIT_GEX_INLINE int conduit_gex_mapped(gex_Rank_t rank_, const void *remote_, size_t bytes_, char **here_) {
#if CONDUIT_GEX_CHECKED
  /* The library performs additional checks, such as whether a handler may make this call. */
  (void)rank_;
  (void)remote_;
  (void)bytes_;
  (void)here_;
#else
  /* Copies the entry instead of pointing to it. The table is constant, so a loop loads the entry
   * once. */
  const conduit_gex_segment_t segment_ = conduit_gex_segments[rank_];
  const uint64_t address_ = (uint64_t)(uintptr_t)remote_;
  const uint64_t offset_ = address_ - segment_.address;
  /* A word needs only one comparison. The last 7 bytes of a segment are left to the library, as
   * are ranges of zero bytes. */
  const int word_ = __builtin_constant_p(bytes_) && bytes_ - 1 < 8;
  const int inside_ = word_ ? offset_ < segment_.words
                            : bytes_ - 1 < segment_.length && offset_ <= segment_.length - bytes_;
  if (CONDUIT_GEX_LIKELY(inside_)) {
    *here_ = (char *)(uintptr_t)(address_ + segment_.delta);
    return 1;
  }
#endif
  return 0;
}

/* A rank that sees a put also sees all writes before it, and reads after a get return nothing
 * older than the get did. Where the processor keeps this order by itself, these macros only
 * restrain the compiler. */
#define CONDUIT_GEX_BEFORE_PUT() __atomic_thread_fence(__ATOMIC_RELEASE)
#define CONDUIT_GEX_AFTER_PUT() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define CONDUIT_GEX_BEFORE_GET() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define CONDUIT_GEX_AFTER_GET() __atomic_thread_fence(__ATOMIC_ACQUIRE)

/* The largest get and put, in bytes, for which the C library's copy is the fastest. */
#define CONDUIT_GEX_LOAD_HERE 2048U
#define CONDUIT_GEX_STORE_HERE 0x7FFFFU

/* Stores a word of 1, 2, 4 or 8 bytes with a single store. If the length is known only at run
 * time, the C library's copy may store such a word twice. If another rank saw the first store
 * and responded with a store of its own, the second store would overwrite the response. */
CONDUIT_GEX_INLINE void conduit_gex_copy(char *to_, const char *from_, size_t bytes_) {
  switch (bytes_) {
    case 1: memcpy(to_, from_, 1); break;
    case 2: memcpy(to_, from_, 2); break;
    case 4: memcpy(to_, from_, 4); break;
    case 8: memcpy(to_, from_, 8); break;
    default:
      if (bytes_ > CONDUIT_GEX_STORE_HERE)
        conduit_gex_store(to_, from_, bytes_);
      else
        memcpy(to_, from_, bytes_);
  }
}

/* Each call below either copies inline or calls one library function with the same arguments.
 * That call comes last, so that a put or get needs no stack frame. */

/* Returns whether a rank of the job's team has an entry in the table and local memory is not
 * null. */
#define CONDUIT_GEX_NEAR(tm, rank, local)                                                       \
  CONDUIT_GEX_LIKELY((const void *)(tm) == conduit_gex_job.team && (rank) < CONDUIT_GEX_NEAR_RANKS && (local) != NULL)

/* Copies to a mapped rank of the job's team. Returns 0 if the library must perform the copy. */
CONDUIT_GEX_INLINE int conduit_gex_put_here(gex_TM_t tm_, gex_Rank_t rank_, void *remote_, const void *source_,
                                            size_t bytes_) {
  char *mapped_ = NULL;
  if (!CONDUIT_GEX_NEAR(tm_, rank_, source_) || !conduit_gex_mapped(rank_, remote_, bytes_, &mapped_)) return 0;
  CONDUIT_GEX_BEFORE_PUT();
  conduit_gex_copy(mapped_, (const char *)source_, bytes_);
  CONDUIT_GEX_AFTER_PUT();
  return 1;
}

/* Copies from a mapped rank of the job's team. Returns 0 if the library must perform the copy. */
CONDUIT_GEX_INLINE int conduit_gex_get_here(gex_TM_t tm_, void *local_, gex_Rank_t rank_, const void *remote_,
                                            size_t bytes_) {
  char *mapped_ = NULL;
  if (!CONDUIT_GEX_NEAR(tm_, rank_, local_) || !conduit_gex_mapped(rank_, remote_, bytes_, &mapped_)) return 0;
  CONDUIT_GEX_BEFORE_GET();
  if (bytes_ > CONDUIT_GEX_LOAD_HERE)
    conduit_gex_load(local_, mapped_, bytes_);
  else
    conduit_gex_copy((char *)local_, mapped_, bytes_);
  CONDUIT_GEX_AFTER_GET();
  return 1;
}

/* Copies the 1 to 8 low-order bytes of a value to a mapped rank. Returns 0 if the library must
 * perform the copy or report an invalid width. */
CONDUIT_GEX_INLINE int conduit_gex_put_value_here(gex_TM_t tm_, gex_Rank_t rank_, void *remote_,
                                                  gex_RMA_Value_t value_, size_t bytes_) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (bytes_ - 1 < sizeof(value_)) return conduit_gex_put_here(tm_, rank_, remote_, &value_, bytes_);
#else
  (void)tm_;
  (void)rank_;
  (void)remote_;
  (void)value_;
  (void)bytes_;
#endif
  return 0;
}

/* ---- blocking ---- */

CONDUIT_GEX_INLINE int gex_RMA_PutBlocking(gex_TM_t tm_, gex_Rank_t rank_, void *destination_, const void *source_,
                                           size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_put_here(tm_, rank_, destination_, source_, bytes_)) return 0;
  return conduit_gex_put(tm_, rank_, destination_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE int gex_RMA_GetBlocking(gex_TM_t tm_, void *destination_, gex_Rank_t rank_, void *source_,
                                           size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_get_here(tm_, destination_, rank_, source_, bytes_)) return 0;
  return conduit_gex_get(tm_, destination_, rank_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE int gex_RMA_PutBlockingVal(gex_TM_t tm_, gex_Rank_t rank_, void *destination_,
                                              gex_RMA_Value_t value_, size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_put_value_here(tm_, rank_, destination_, value_, bytes_)) return 0;
  return conduit_gex_put_value(tm_, rank_, destination_, value_, bytes_, flags_);
}

CONDUIT_GEX_INLINE gex_RMA_Value_t gex_RMA_GetBlockingVal(gex_TM_t tm_, gex_Rank_t rank_, void *source_,
                                                          size_t bytes_, gex_Flags_t flags_) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  gex_RMA_Value_t value_ = 0;
  if (bytes_ - 1 < sizeof(value_) && conduit_gex_get_here(tm_, &value_, rank_, source_, bytes_)) return value_;
#endif
  return conduit_gex_get_value(tm_, rank_, source_, bytes_, flags_);
}

/* ---- explicit events ---- */

CONDUIT_GEX_INLINE gex_Event_t gex_RMA_PutNB(gex_TM_t tm_, gex_Rank_t rank_, void *destination_, const void *source_,
                                             size_t bytes_, gex_Event_t *local_, gex_Flags_t flags_) {
  if (!conduit_gex_put_here(tm_, rank_, destination_, source_, bytes_))
    return conduit_gex_put_nb(tm_, rank_, destination_, source_, bytes_, local_, flags_);
  if ((uintptr_t)local_ > (uintptr_t)GEX_EVENT_GROUP) *local_ = GEX_EVENT_INVALID;
  return GEX_EVENT_INVALID;
}

CONDUIT_GEX_INLINE gex_Event_t gex_RMA_GetNB(gex_TM_t tm_, void *destination_, gex_Rank_t rank_, void *source_,
                                             size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_get_here(tm_, destination_, rank_, source_, bytes_)) return GEX_EVENT_INVALID;
  return conduit_gex_get_nb(tm_, destination_, rank_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE gex_Event_t gex_RMA_PutNBVal(gex_TM_t tm_, gex_Rank_t rank_, void *destination_,
                                                gex_RMA_Value_t value_, size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_put_value_here(tm_, rank_, destination_, value_, bytes_)) return GEX_EVENT_INVALID;
  return conduit_gex_put_value_nb(tm_, rank_, destination_, value_, bytes_, flags_);
}

/* ---- implicit ---- */

CONDUIT_GEX_INLINE int gex_RMA_PutNBI(gex_TM_t tm_, gex_Rank_t rank_, void *destination_, const void *source_,
                                      size_t bytes_, gex_Event_t *local_, gex_Flags_t flags_) {
  if (conduit_gex_put_here(tm_, rank_, destination_, source_, bytes_)) return 0;
  return conduit_gex_put_nbi(tm_, rank_, destination_, source_, bytes_, local_, flags_);
}

CONDUIT_GEX_INLINE int gex_RMA_GetNBI(gex_TM_t tm_, void *destination_, gex_Rank_t rank_, void *source_,
                                      size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_get_here(tm_, destination_, rank_, source_, bytes_)) return 0;
  return conduit_gex_get_nbi(tm_, destination_, rank_, source_, bytes_, flags_);
}

CONDUIT_GEX_INLINE int gex_RMA_PutNBIVal(gex_TM_t tm_, gex_Rank_t rank_, void *destination_, gex_RMA_Value_t value_,
                                         size_t bytes_, gex_Flags_t flags_) {
  if (conduit_gex_put_value_here(tm_, rank_, destination_, value_, bytes_)) return 0;
  return conduit_gex_put_value_nbi(tm_, rank_, destination_, value_, bytes_, flags_);
}

#ifdef __cplusplus
}
#endif

#endif
