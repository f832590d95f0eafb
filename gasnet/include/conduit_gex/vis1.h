/* GASNet-1's puts and gets of noncontiguous memory. */
#ifndef CONDUIT_GEX_VIS1_H
#define CONDUIT_GEX_VIS1_H

#include <conduit_gex/vis.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  void *addr;
  size_t len;
} gasnet_memvec_t;

/* Strides are in bytes. The first count is the size of an element in bytes; the counts of the
 * dimensions follow. */
#define CONDUIT_GASNET_STRIDED(address_, strides_) \
  conduit_gex_strided(address_, (const ptrdiff_t *)(strides_), counts_[0], counts_ + 1, dimensions_)

CONDUIT_GEX_INLINE void gasnet_putv_bulk(gex_Rank_t node_, size_t destination_count_,
                                         const gasnet_memvec_t destination_list_[], size_t source_count_,
                                         const gasnet_memvec_t source_list_[]) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(destination_count_, destination_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(source_count_, source_list_);
  (void)conduit_gex_vis_put("gasnet_putv_bulk", node_, &there_, &here_, CONDUIT_GEX_BLOCKING, 0);
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_putv_nb_bulk(gex_Rank_t node_, size_t destination_count_,
                                                       const gasnet_memvec_t destination_list_[],
                                                       size_t source_count_, const gasnet_memvec_t source_list_[]) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(destination_count_, destination_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(source_count_, source_list_);
  return (gex_Event_t)conduit_gex_vis_put("gasnet_putv_nb_bulk", node_, &there_, &here_, CONDUIT_GEX_NB, 0);
}

CONDUIT_GEX_INLINE void gasnet_putv_nbi_bulk(gex_Rank_t node_, size_t destination_count_,
                                             const gasnet_memvec_t destination_list_[], size_t source_count_,
                                             const gasnet_memvec_t source_list_[]) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(destination_count_, destination_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(source_count_, source_list_);
  (void)conduit_gex_vis_put("gasnet_putv_nbi_bulk", node_, &there_, &here_, CONDUIT_GEX_NBI, 0);
}

CONDUIT_GEX_INLINE void gasnet_getv_bulk(size_t destination_count_, const gasnet_memvec_t destination_list_[],
                                         gex_Rank_t node_, size_t source_count_,
                                         const gasnet_memvec_t source_list_[]) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(source_count_, source_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(destination_count_, destination_list_);
  (void)conduit_gex_vis_get("gasnet_getv_bulk", node_, &there_, &here_, CONDUIT_GEX_BLOCKING, 0);
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_getv_nb_bulk(size_t destination_count_,
                                                       const gasnet_memvec_t destination_list_[], gex_Rank_t node_,
                                                       size_t source_count_, const gasnet_memvec_t source_list_[]) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(source_count_, source_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(destination_count_, destination_list_);
  return (gex_Event_t)conduit_gex_vis_get("gasnet_getv_nb_bulk", node_, &there_, &here_, CONDUIT_GEX_NB, 0);
}

CONDUIT_GEX_INLINE void gasnet_getv_nbi_bulk(size_t destination_count_, const gasnet_memvec_t destination_list_[],
                                             gex_Rank_t node_, size_t source_count_,
                                             const gasnet_memvec_t source_list_[]) {
  const conduit_gex_ranges_t there_ = conduit_gex_vector(source_count_, source_list_);
  const conduit_gex_ranges_t here_ = conduit_gex_vector(destination_count_, destination_list_);
  (void)conduit_gex_vis_get("gasnet_getv_nbi_bulk", node_, &there_, &here_, CONDUIT_GEX_NBI, 0);
}

CONDUIT_GEX_INLINE void gasnet_puti_bulk(gex_Rank_t node_, size_t destination_count_,
                                         void *const destination_list_[], size_t destination_bytes_,
                                         size_t source_count_, void *const source_list_[], size_t source_bytes_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  (void)conduit_gex_vis_put("gasnet_puti_bulk", node_, &there_, &here_, CONDUIT_GEX_BLOCKING, 0);
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_puti_nb_bulk(gex_Rank_t node_, size_t destination_count_,
                                                       void *const destination_list_[], size_t destination_bytes_,
                                                       size_t source_count_, void *const source_list_[],
                                                       size_t source_bytes_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  return (gex_Event_t)conduit_gex_vis_put("gasnet_puti_nb_bulk", node_, &there_, &here_, CONDUIT_GEX_NB, 0);
}

CONDUIT_GEX_INLINE void gasnet_puti_nbi_bulk(gex_Rank_t node_, size_t destination_count_,
                                             void *const destination_list_[], size_t destination_bytes_,
                                             size_t source_count_, void *const source_list_[], size_t source_bytes_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  (void)conduit_gex_vis_put("gasnet_puti_nbi_bulk", node_, &there_, &here_, CONDUIT_GEX_NBI, 0);
}

CONDUIT_GEX_INLINE void gasnet_geti_bulk(size_t destination_count_, void *const destination_list_[],
                                         size_t destination_bytes_, gex_Rank_t node_, size_t source_count_,
                                         void *const source_list_[], size_t source_bytes_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  (void)conduit_gex_vis_get("gasnet_geti_bulk", node_, &there_, &here_, CONDUIT_GEX_BLOCKING, 0);
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_geti_nb_bulk(size_t destination_count_, void *const destination_list_[],
                                                       size_t destination_bytes_, gex_Rank_t node_,
                                                       size_t source_count_, void *const source_list_[],
                                                       size_t source_bytes_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  return (gex_Event_t)conduit_gex_vis_get("gasnet_geti_nb_bulk", node_, &there_, &here_, CONDUIT_GEX_NB, 0);
}

CONDUIT_GEX_INLINE void gasnet_geti_nbi_bulk(size_t destination_count_, void *const destination_list_[],
                                             size_t destination_bytes_, gex_Rank_t node_, size_t source_count_,
                                             void *const source_list_[], size_t source_bytes_) {
  const conduit_gex_ranges_t there_ = conduit_gex_indexed(source_count_, source_list_, source_bytes_);
  const conduit_gex_ranges_t here_ = conduit_gex_indexed(destination_count_, destination_list_, destination_bytes_);
  (void)conduit_gex_vis_get("gasnet_geti_nbi_bulk", node_, &there_, &here_, CONDUIT_GEX_NBI, 0);
}

CONDUIT_GEX_INLINE void gasnet_puts_bulk(gex_Rank_t node_, void *destination_, const size_t destination_strides_[],
                                         void *source_, const size_t source_strides_[], const size_t counts_[],
                                         size_t dimensions_) {
  const conduit_gex_ranges_t there_ = CONDUIT_GASNET_STRIDED(destination_, destination_strides_);
  const conduit_gex_ranges_t here_ = CONDUIT_GASNET_STRIDED(source_, source_strides_);
  (void)conduit_gex_vis_put("gasnet_puts_bulk", node_, &there_, &here_, CONDUIT_GEX_BLOCKING, 0);
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_puts_nb_bulk(gex_Rank_t node_, void *destination_,
                                                       const size_t destination_strides_[], void *source_,
                                                       const size_t source_strides_[], const size_t counts_[],
                                                       size_t dimensions_) {
  const conduit_gex_ranges_t there_ = CONDUIT_GASNET_STRIDED(destination_, destination_strides_);
  const conduit_gex_ranges_t here_ = CONDUIT_GASNET_STRIDED(source_, source_strides_);
  return (gex_Event_t)conduit_gex_vis_put("gasnet_puts_nb_bulk", node_, &there_, &here_, CONDUIT_GEX_NB, 0);
}

CONDUIT_GEX_INLINE void gasnet_puts_nbi_bulk(gex_Rank_t node_, void *destination_,
                                             const size_t destination_strides_[], void *source_,
                                             const size_t source_strides_[], const size_t counts_[],
                                             size_t dimensions_) {
  const conduit_gex_ranges_t there_ = CONDUIT_GASNET_STRIDED(destination_, destination_strides_);
  const conduit_gex_ranges_t here_ = CONDUIT_GASNET_STRIDED(source_, source_strides_);
  (void)conduit_gex_vis_put("gasnet_puts_nbi_bulk", node_, &there_, &here_, CONDUIT_GEX_NBI, 0);
}

CONDUIT_GEX_INLINE void gasnet_gets_bulk(void *destination_, const size_t destination_strides_[], gex_Rank_t node_,
                                         void *source_, const size_t source_strides_[], const size_t counts_[],
                                         size_t dimensions_) {
  const conduit_gex_ranges_t there_ = CONDUIT_GASNET_STRIDED(source_, source_strides_);
  const conduit_gex_ranges_t here_ = CONDUIT_GASNET_STRIDED(destination_, destination_strides_);
  (void)conduit_gex_vis_get("gasnet_gets_bulk", node_, &there_, &here_, CONDUIT_GEX_BLOCKING, 0);
}

CONDUIT_GEX_INLINE gex_Event_t gasnet_gets_nb_bulk(void *destination_, const size_t destination_strides_[],
                                                       gex_Rank_t node_, void *source_,
                                                       const size_t source_strides_[], const size_t counts_[],
                                                       size_t dimensions_) {
  const conduit_gex_ranges_t there_ = CONDUIT_GASNET_STRIDED(source_, source_strides_);
  const conduit_gex_ranges_t here_ = CONDUIT_GASNET_STRIDED(destination_, destination_strides_);
  return (gex_Event_t)conduit_gex_vis_get("gasnet_gets_nb_bulk", node_, &there_, &here_, CONDUIT_GEX_NB, 0);
}

CONDUIT_GEX_INLINE void gasnet_gets_nbi_bulk(void *destination_, const size_t destination_strides_[],
                                             gex_Rank_t node_, void *source_, const size_t source_strides_[],
                                             const size_t counts_[], size_t dimensions_) {
  const conduit_gex_ranges_t there_ = CONDUIT_GASNET_STRIDED(source_, source_strides_);
  const conduit_gex_ranges_t here_ = CONDUIT_GASNET_STRIDED(destination_, destination_strides_);
  (void)conduit_gex_vis_get("gasnet_gets_nbi_bulk", node_, &there_, &here_, CONDUIT_GEX_NBI, 0);
}

#ifdef __cplusplus
}
#endif

#endif
