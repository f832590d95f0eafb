/* The arguments of multi-range calls to the library: the ranges of each side, and how the call
 * waits. */
#ifndef CONDUIT_GEX_VIS_H
#define CONDUIT_GEX_VIS_H

#include <conduit_gex/entries.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONDUIT_GEX_VECTOR 0U
#define CONDUIT_GEX_INDEXED 1U
#define CONDUIT_GEX_STRIDED 2U

typedef struct {
  uint32_t shape;
  /* The number of ranges or dimensions. */
  size_t count;
  /* For a vector, its gex_Memvec_t; for a list, the addresses; for an array, the strides. */
  const void *list;
  /* The number of elements in each dimension of an array. */
  const size_t *counts;
  /* The size of each range or element. */
  size_t bytes;
  /* The address of an array's first element. */
  void *address;
} conduit_gex_ranges_t;

CONDUIT_GEX_INLINE conduit_gex_ranges_t conduit_gex_vector(size_t count_, const void *list_) {
  const conduit_gex_ranges_t ranges_ = {CONDUIT_GEX_VECTOR, count_, list_, NULL, 0, NULL};
  return ranges_;
}

CONDUIT_GEX_INLINE conduit_gex_ranges_t conduit_gex_indexed(size_t count_, void *const *list_, size_t bytes_) {
  const conduit_gex_ranges_t ranges_ = {CONDUIT_GEX_INDEXED, count_, list_, NULL, bytes_, NULL};
  return ranges_;
}

CONDUIT_GEX_INLINE conduit_gex_ranges_t conduit_gex_strided(void *address_, const ptrdiff_t *strides_, size_t bytes_,
                                                            const size_t *counts_, size_t dimensions_) {
  const conduit_gex_ranges_t ranges_ = {CONDUIT_GEX_STRIDED, dimensions_, strides_, counts_, bytes_, address_};
  return ranges_;
}

#define CONDUIT_GEX_NB 0U
#define CONDUIT_GEX_NBI 1U
#define CONDUIT_GEX_BLOCKING 2U

/* Returns an event for the NB form. Returns 0 for the other forms, or 1 if nothing was done. */
uintptr_t conduit_gex_vis_put(const char *call, gex_Rank_t rank, const conduit_gex_ranges_t *there,
                              const conduit_gex_ranges_t *here, uint32_t form, gex_Flags_t flags);
uintptr_t conduit_gex_vis_get(const char *call, gex_Rank_t rank, const conduit_gex_ranges_t *there,
                              const conduit_gex_ranges_t *here, uint32_t form, gex_Flags_t flags);

#ifdef __cplusplus
}
#endif

#endif
