/* Puts and gets of noncontiguous memory: vectors of ranges, lists of addresses, strided arrays.
 *
 * The two sides must have the same total number of bytes, but may divide them differently.
 * Ranges that are written must not overlap; ranges that are read may. Lists, strides and counts
 * are used only during the call. The local memory belongs to the operation until the operation
 * is complete. */
#ifndef CONDUIT_GASNET_VIS_H
#define CONDUIT_GASNET_VIS_H

#include <gasnetex.h>

#include <conduit_gex/vis.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes this thread's next put with a call of this header run a handler at the target after all
 * bytes of the put have arrived. The handler runs like that of a medium reply without arguments.
 * Its payload, of at most GEX_VIS_MAX_PEERCOMPLETION bytes, is read by the put. Handler 0 means
 * no handler. Such a put is complete when its call returns. Deprecated by GASNet-EX. */
#define GEX_VIS_MAX_PEERCOMPLETION 512
void gex_VIS_SetPeerCompletionHandler(gex_AM_Index_t handler, const void *source, size_t bytes, gex_Flags_t flags);

/* ---- ranges of any length ---- */

CONDUIT_GEX_INLINE gex_Event_t gex_VIS_VectorPutNB(gex_TM_t tm_, gex_Rank_t rank_, size_t destination_count_,
                                                   const gex_Memvec_t destination_list_[], size_t source_count_,
                                                   const gex_Memvec_t source_list_[], gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(destination_count_, destination_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(source_count_, source_list_);
  rank_ = conduit_gex_rank("gex_VIS_VectorPutNB", tm_, rank_);
  return (gex_Event_t)conduit_gex_vis_put("gex_VIS_VectorPutNB", rank_, &there_, &here_, CONDUIT_GEX_NB, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_VectorPutNBI(gex_TM_t tm_, gex_Rank_t rank_, size_t destination_count_,
                                            const gex_Memvec_t destination_list_[], size_t source_count_,
                                            const gex_Memvec_t source_list_[], gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(destination_count_, destination_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(source_count_, source_list_);
  rank_ = conduit_gex_rank("gex_VIS_VectorPutNBI", tm_, rank_);
  return (int)conduit_gex_vis_put("gex_VIS_VectorPutNBI", rank_, &there_, &here_, CONDUIT_GEX_NBI, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_VectorPutBlocking(gex_TM_t tm_, gex_Rank_t rank_, size_t destination_count_,
                                                 const gex_Memvec_t destination_list_[], size_t source_count_,
                                                 const gex_Memvec_t source_list_[], gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(destination_count_, destination_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(source_count_, source_list_);
  rank_ = conduit_gex_rank("gex_VIS_VectorPutBlocking", tm_, rank_);
  return (int)conduit_gex_vis_put("gex_VIS_VectorPutBlocking", rank_, &there_, &here_, CONDUIT_GEX_BLOCKING, flags_);
}

CONDUIT_GEX_INLINE gex_Event_t gex_VIS_VectorGetNB(gex_TM_t tm_, size_t destination_count_,
                                                   const gex_Memvec_t destination_list_[], gex_Rank_t rank_,
                                                   size_t source_count_, const gex_Memvec_t source_list_[],
                                                   gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(source_count_, source_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(destination_count_, destination_list_);
  rank_ = conduit_gex_rank("gex_VIS_VectorGetNB", tm_, rank_);
  return (gex_Event_t)conduit_gex_vis_get("gex_VIS_VectorGetNB", rank_, &there_, &here_, CONDUIT_GEX_NB, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_VectorGetNBI(gex_TM_t tm_, size_t destination_count_,
                                            const gex_Memvec_t destination_list_[], gex_Rank_t rank_,
                                            size_t source_count_, const gex_Memvec_t source_list_[],
                                            gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(source_count_, source_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(destination_count_, destination_list_);
  rank_ = conduit_gex_rank("gex_VIS_VectorGetNBI", tm_, rank_);
  return (int)conduit_gex_vis_get("gex_VIS_VectorGetNBI", rank_, &there_, &here_, CONDUIT_GEX_NBI, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_VectorGetBlocking(gex_TM_t tm_, size_t destination_count_,
                                                 const gex_Memvec_t destination_list_[], gex_Rank_t rank_,
                                                 size_t source_count_, const gex_Memvec_t source_list_[],
                                                 gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(source_count_, source_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(destination_count_, destination_list_);
  rank_ = conduit_gex_rank("gex_VIS_VectorGetBlocking", tm_, rank_);
  return (int)conduit_gex_vis_get("gex_VIS_VectorGetBlocking", rank_, &there_, &here_, CONDUIT_GEX_BLOCKING, flags_);
}

/* ---- ranges of the same length ---- */

CONDUIT_GEX_INLINE gex_Event_t gex_VIS_IndexedPutNB(gex_TM_t tm_, gex_Rank_t rank_, size_t destination_count_,
                                                    void *const destination_list_[], size_t destination_bytes_,
                                                    size_t source_count_, void *const source_list_[],
                                                    size_t source_bytes_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  rank_ = conduit_gex_rank("gex_VIS_IndexedPutNB", tm_, rank_);
  return (gex_Event_t)conduit_gex_vis_put("gex_VIS_IndexedPutNB", rank_, &there_, &here_, CONDUIT_GEX_NB, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_IndexedPutNBI(gex_TM_t tm_, gex_Rank_t rank_, size_t destination_count_,
                                             void *const destination_list_[], size_t destination_bytes_,
                                             size_t source_count_, void *const source_list_[], size_t source_bytes_,
                                             gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  rank_ = conduit_gex_rank("gex_VIS_IndexedPutNBI", tm_, rank_);
  return (int)conduit_gex_vis_put("gex_VIS_IndexedPutNBI", rank_, &there_, &here_, CONDUIT_GEX_NBI, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_IndexedPutBlocking(gex_TM_t tm_, gex_Rank_t rank_, size_t destination_count_,
                                                  void *const destination_list_[], size_t destination_bytes_,
                                                  size_t source_count_, void *const source_list_[],
                                                  size_t source_bytes_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  rank_ = conduit_gex_rank("gex_VIS_IndexedPutBlocking", tm_, rank_);
  return (int)conduit_gex_vis_put("gex_VIS_IndexedPutBlocking", rank_, &there_, &here_, CONDUIT_GEX_BLOCKING, flags_);
}

CONDUIT_GEX_INLINE gex_Event_t gex_VIS_IndexedGetNB(gex_TM_t tm_, size_t destination_count_,
                                                    void *const destination_list_[], size_t destination_bytes_,
                                                    gex_Rank_t rank_, size_t source_count_,
                                                    void *const source_list_[], size_t source_bytes_,
                                                    gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  rank_ = conduit_gex_rank("gex_VIS_IndexedGetNB", tm_, rank_);
  return (gex_Event_t)conduit_gex_vis_get("gex_VIS_IndexedGetNB", rank_, &there_, &here_, CONDUIT_GEX_NB, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_IndexedGetNBI(gex_TM_t tm_, size_t destination_count_, void *const destination_list_[],
                                             size_t destination_bytes_, gex_Rank_t rank_, size_t source_count_,
                                             void *const source_list_[], size_t source_bytes_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  rank_ = conduit_gex_rank("gex_VIS_IndexedGetNBI", tm_, rank_);
  return (int)conduit_gex_vis_get("gex_VIS_IndexedGetNBI", rank_, &there_, &here_, CONDUIT_GEX_NBI, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_IndexedGetBlocking(gex_TM_t tm_, size_t destination_count_,
                                                  void *const destination_list_[], size_t destination_bytes_,
                                                  gex_Rank_t rank_, size_t source_count_, void *const source_list_[],
                                                  size_t source_bytes_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  rank_ = conduit_gex_rank("gex_VIS_IndexedGetBlocking", tm_, rank_);
  return (int)conduit_gex_vis_get("gex_VIS_IndexedGetBlocking", rank_, &there_, &here_, CONDUIT_GEX_BLOCKING, flags_);
}

/* ---- arrays ---- */

/* The first stride and count are those of the fastest-varying dimension. Strides are in bytes,
 * and may be negative. An array without dimensions consists of one element. */

CONDUIT_GEX_INLINE gex_Event_t gex_VIS_StridedPutNB(gex_TM_t tm_, gex_Rank_t rank_, void *destination_,
                                                    const ptrdiff_t destination_strides_[], void *source_,
                                                    const ptrdiff_t source_strides_[], size_t bytes_,
                                                    const size_t counts_[], size_t dimensions_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_strided(destination_, destination_strides_, bytes_, counts_, dimensions_);
  const conduit_gex_ranges_t here_ = conduit_gex_strided(source_, source_strides_, bytes_, counts_, dimensions_);
  rank_ = conduit_gex_rank("gex_VIS_StridedPutNB", tm_, rank_);
  return (gex_Event_t)conduit_gex_vis_put("gex_VIS_StridedPutNB", rank_, &there_, &here_, CONDUIT_GEX_NB, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_StridedPutNBI(gex_TM_t tm_, gex_Rank_t rank_, void *destination_,
                                             const ptrdiff_t destination_strides_[], void *source_,
                                             const ptrdiff_t source_strides_[], size_t bytes_, const size_t counts_[],
                                             size_t dimensions_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_strided(destination_, destination_strides_, bytes_, counts_, dimensions_);
  const conduit_gex_ranges_t here_ = conduit_gex_strided(source_, source_strides_, bytes_, counts_, dimensions_);
  rank_ = conduit_gex_rank("gex_VIS_StridedPutNBI", tm_, rank_);
  return (int)conduit_gex_vis_put("gex_VIS_StridedPutNBI", rank_, &there_, &here_, CONDUIT_GEX_NBI, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_StridedPutBlocking(gex_TM_t tm_, gex_Rank_t rank_, void *destination_,
                                                  const ptrdiff_t destination_strides_[], void *source_,
                                                  const ptrdiff_t source_strides_[], size_t bytes_,
                                                  const size_t counts_[], size_t dimensions_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_strided(destination_, destination_strides_, bytes_, counts_, dimensions_);
  const conduit_gex_ranges_t here_ = conduit_gex_strided(source_, source_strides_, bytes_, counts_, dimensions_);
  rank_ = conduit_gex_rank("gex_VIS_StridedPutBlocking", tm_, rank_);
  return (int)conduit_gex_vis_put("gex_VIS_StridedPutBlocking", rank_, &there_, &here_, CONDUIT_GEX_BLOCKING, flags_);
}

CONDUIT_GEX_INLINE gex_Event_t gex_VIS_StridedGetNB(gex_TM_t tm_, void *destination_,
                                                    const ptrdiff_t destination_strides_[], gex_Rank_t rank_,
                                                    void *source_, const ptrdiff_t source_strides_[], size_t bytes_,
                                                    const size_t counts_[], size_t dimensions_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_strided(source_, source_strides_, bytes_, counts_, dimensions_);
  const conduit_gex_ranges_t here_ = conduit_gex_strided(destination_, destination_strides_, bytes_, counts_, dimensions_);
  rank_ = conduit_gex_rank("gex_VIS_StridedGetNB", tm_, rank_);
  return (gex_Event_t)conduit_gex_vis_get("gex_VIS_StridedGetNB", rank_, &there_, &here_, CONDUIT_GEX_NB, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_StridedGetNBI(gex_TM_t tm_, void *destination_, const ptrdiff_t destination_strides_[],
                                             gex_Rank_t rank_, void *source_, const ptrdiff_t source_strides_[],
                                             size_t bytes_, const size_t counts_[], size_t dimensions_,
                                             gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_strided(source_, source_strides_, bytes_, counts_, dimensions_);
  const conduit_gex_ranges_t here_ = conduit_gex_strided(destination_, destination_strides_, bytes_, counts_, dimensions_);
  rank_ = conduit_gex_rank("gex_VIS_StridedGetNBI", tm_, rank_);
  return (int)conduit_gex_vis_get("gex_VIS_StridedGetNBI", rank_, &there_, &here_, CONDUIT_GEX_NBI, flags_);
}

CONDUIT_GEX_INLINE int gex_VIS_StridedGetBlocking(gex_TM_t tm_, void *destination_,
                                                  const ptrdiff_t destination_strides_[], gex_Rank_t rank_,
                                                  void *source_, const ptrdiff_t source_strides_[], size_t bytes_,
                                                  const size_t counts_[], size_t dimensions_, gex_Flags_t flags_) {
  const conduit_gex_ranges_t there_ = conduit_gex_strided(source_, source_strides_, bytes_, counts_, dimensions_);
  const conduit_gex_ranges_t here_ = conduit_gex_strided(destination_, destination_strides_, bytes_, counts_, dimensions_);
  rank_ = conduit_gex_rank("gex_VIS_StridedGetBlocking", tm_, rank_);
  return (int)conduit_gex_vis_get("gex_VIS_StridedGetBlocking", rank_, &there_, &here_, CONDUIT_GEX_BLOCKING, flags_);
}

#ifdef __cplusplus
}
#endif

#endif
