/* Random vectors of ranges, address lists and arrays, and the places of their bytes. Works with
 * both interfaces. A program must include gasnetex.h or gasnet.h before this header. */
#ifndef GEX_RANGES_H
#define GEX_RANGES_H

#include "check.h"

#define AREA ((size_t)1 << 16)
#define MOST_BYTES ((size_t)20000)
#define MOST_ENTRIES 3000
#define MOST_DIMENSIONS 5

enum { VECTOR, INDEXED, STRIDED, KINDS };

/* One side of a transfer, whose bytes lie in an area. */
typedef struct {
  size_t count;
  gex_Memvec_t list[MOST_ENTRIES];
  void *addresses[MOST_ENTRIES];
  size_t bytes;
  char *first;
  ptrdiff_t strides[MOST_DIMENSIONS];
  size_t counts[MOST_DIMENSIONS];
  /* The place of each of the side's bytes in the area. */
  size_t places[MOST_BYTES];
  size_t all;
} side_t;

static uint64_t drawn = 1;

static size_t draw(size_t below) {
  drawn = drawn * 6364136223846793005U + 1442695040888963407U;
  return (size_t)(drawn >> 33) % below;
}

static void add_bytes(side_t *side, char *area, const char *from, size_t bytes) {
  size_t i;
  for (i = 0; i < bytes; ++i) {
    CHECK(side->all < MOST_BYTES);
    side->places[side->all++] = (size_t)(from - area) + i;
  }
}

/* Makes ranges of `bytes` bytes in total. Each has `each` bytes, or any length and is sometimes
 * empty if `each` is 0. They don't overlap and are in ascending or descending order. */
static void cut(side_t *side, char *area, size_t bytes, size_t each) {
  size_t left = bytes, at = draw(64), i;
  const int backwards = (int)draw(2);
  side->count = side->all = 0;
  side->bytes = each;
  while (left > 0 || (!each && draw(4) == 0 && side->count < MOST_ENTRIES)) {
    size_t length = each ? each : draw(draw(8) ? 40 : 6000);
    if (length > left) length = left;
    if (draw(3)) at += draw(AREA > at + 2 * left + 64 ? 24 : 1);
    side->list[side->count].gex_addr = area + at;
    side->list[side->count].gex_len = length;
    at += length;
    left -= length;
    ++side->count;
    CHECK(side->count < MOST_ENTRIES || left == 0);
  }
  CHECK(at <= AREA);
  for (i = 0; backwards && i < side->count / 2; ++i) {
    const gex_Memvec_t kept = side->list[i];
    side->list[i] = side->list[side->count - 1 - i];
    side->list[side->count - 1 - i] = kept;
  }
  for (i = 0; i < side->count; ++i) {
    side->addresses[i] = side->list[i].gex_addr;
    add_bytes(side, area, (char *)side->list[i].gex_addr, side->list[i].gex_len);
  }
}

/* Lists the places of an array's bytes, element by element. */
static void expand(side_t *side, char *area) {
  size_t elements = 1, i, dimension;
  for (i = 0; i < side->count; ++i) elements *= side->counts[i];
  side->all = 0;
  for (i = 0; i < elements; ++i) {
    size_t number = i;
    char *from = side->first;
    for (dimension = 0; dimension < side->count; ++dimension) {
      from += (ptrdiff_t)(number % side->counts[dimension]) * side->strides[dimension];
      number /= side->counts[dimension];
    }
    add_bytes(side, area, from, side->bytes);
  }
}

/* Chooses strides so that no elements overlap. There are gaps, and some strides go backwards. */
static void lay_out(side_t *side, char *area, size_t skipped) {
  size_t space = side->bytes, at = 0, i;
  for (i = 0; i < side->count; ++i) {
    const size_t dimension = (i + skipped) % side->count;
    const size_t count = side->counts[dimension];
    space += draw(2) * draw(4);
    side->strides[dimension] = (ptrdiff_t)space;
    if (count > 0 && draw(3) == 0) {
      side->strides[dimension] = -side->strides[dimension];
      at += space * (count - 1);
    }
    space *= count ? count : 1;
  }
  CHECK(space <= AREA);
  side->first = area + at;
  expand(side, area);
}

/* Draws the two sides of a transfer of this kind. */
static void draw_sides(int kind, side_t *one, char *one_area, side_t *other, char *other_area) {
  static const size_t lengths[] = {1, 2, 8, 24, 600};
  size_t i;
  if (kind == VECTOR) {
    const size_t bytes = draw(5) ? draw(3000) : draw(MOST_BYTES - 1);
    cut(one, one_area, bytes, 0);
    cut(other, other_area, bytes, 0);
  } else if (kind == INDEXED) {
    const size_t left = lengths[draw(5)], right = lengths[draw(5)];
    /* A number of bytes that can be divided into pieces of either length. */
    const size_t both = left > right ? (left % right ? left * right : left) : (right % left ? left * right : right);
    const size_t bytes = both * draw((both > 2000 ? MOST_BYTES : 2000) / both + 1);
    cut(one, one_area, bytes, left);
    cut(other, other_area, bytes, right);
  } else {
    one->count = draw(MOST_DIMENSIONS + 1);
    one->bytes = 1 + draw(16);
    for (i = 0; i < one->count; ++i) one->counts[i] = draw(30) ? 1 + draw(5 - i / 2) : 0;
    memcpy(other->counts, one->counts, sizeof(one->counts));
    other->count = one->count;
    other->bytes = one->bytes;
    lay_out(one, one_area, draw(MOST_DIMENSIONS));
    lay_out(other, other_area, draw(MOST_DIMENSIONS));
  }
  CHECK_EQ(one->all, other->all);
}

#endif
