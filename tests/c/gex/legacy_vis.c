/* GASNet-1's puts and gets of vectors, address lists and arrays, in each form. */
#include "legacy_start.h"

#include "ranges.h"

#define ROUNDS 12

enum { BLOCKING, HANDLE, IMPLICIT, FORMS };

static side_t here, there;
static gasnet_memvec_t here_list[MOST_ENTRIES], there_list[MOST_ENTRIES];
static size_t here_strides[MOST_DIMENSIONS], there_strides[MOST_DIMENSIONS], counts[MOST_DIMENSIONS + 1];
static char *local, *found, *expected;

/* Translates the ranges into the types of GASNet-1. */
static void translate(void) {
  size_t i;
  for (i = 0; i < here.count && i < MOST_ENTRIES; ++i) {
    here_list[i].addr = here.list[i].gex_addr;
    here_list[i].len = here.list[i].gex_len;
  }
  for (i = 0; i < there.count && i < MOST_ENTRIES; ++i) {
    there_list[i].addr = there.list[i].gex_addr;
    there_list[i].len = there.list[i].gex_len;
  }
  counts[0] = here.bytes;
  for (i = 0; i < MOST_DIMENSIONS; ++i) {
    here_strides[i] = (size_t)here.strides[i];
    there_strides[i] = (size_t)there.strides[i];
    counts[i + 1] = here.counts[i];
  }
}

static gasnet_handle_t put(int kind, int form, gasnet_node_t node) {
#define VECTORS node, there.count, there_list, here.count, here_list
#define LISTS node, there.count, there.addresses, there.bytes, here.count, here.addresses, here.bytes
#define ARRAYS node, there.first, there_strides, here.first, here_strides, counts, here.count
  switch (kind * FORMS + form) {
    case 0: gasnet_putv_bulk(VECTORS); break;
    case 1: return gasnet_putv_nb_bulk(VECTORS);
    case 2: gasnet_putv_nbi_bulk(VECTORS); break;
    case 3: gasnet_puti_bulk(LISTS); break;
    case 4: return gasnet_puti_nb_bulk(LISTS);
    case 5: gasnet_puti_nbi_bulk(LISTS); break;
    case 6: gasnet_puts_bulk(ARRAYS); break;
    case 7: return gasnet_puts_nb_bulk(ARRAYS);
    default: gasnet_puts_nbi_bulk(ARRAYS); break;
  }
#undef VECTORS
#undef LISTS
#undef ARRAYS
  return GASNET_INVALID_HANDLE;
}

static gasnet_handle_t get(int kind, int form, gasnet_node_t node) {
#define VECTORS here.count, here_list, node, there.count, there_list
#define LISTS here.count, here.addresses, here.bytes, node, there.count, there.addresses, there.bytes
#define ARRAYS here.first, here_strides, node, there.first, there_strides, counts, here.count
  switch (kind * FORMS + form) {
    case 0: gasnet_getv_bulk(VECTORS); break;
    case 1: return gasnet_getv_nb_bulk(VECTORS);
    case 2: gasnet_getv_nbi_bulk(VECTORS); break;
    case 3: gasnet_geti_bulk(LISTS); break;
    case 4: return gasnet_geti_nb_bulk(LISTS);
    case 5: gasnet_geti_nbi_bulk(LISTS); break;
    case 6: gasnet_gets_bulk(ARRAYS); break;
    case 7: return gasnet_gets_nb_bulk(ARRAYS);
    default: gasnet_gets_nbi_bulk(ARRAYS); break;
  }
  return GASNET_INVALID_HANDLE;
}

static void put_and_get(int kind, int form, gasnet_node_t node, char *area) {
  static unsigned int message;
  size_t i;
  draw_sides(kind, &there, area, &here, local);
  translate();
  memset(found, 0x11, AREA);
  memset(expected, 0x11, AREA);
  gasnet_put(node, area, found, AREA);
  fill(local, AREA, ++message);
  for (i = 0; i < there.all; ++i) expected[there.places[i]] = local[here.places[i]];
  gasnet_wait_syncnb(put(kind, form, node));
  gasnet_wait_syncnbi_puts();
  gasnet_get(found, node, area, AREA);
  CHECK(!memcmp(found, expected, AREA));

  draw_sides(kind, &there, area, &here, local);
  translate();
  memset(local, 0x22, AREA);
  memset(expected, 0x22, AREA);
  for (i = 0; i < there.all; ++i) expected[here.places[i]] = found[there.places[i]];
  gasnet_wait_syncnb(get(kind, form, node));
  gasnet_wait_syncnbi_gets();
  CHECK(!memcmp(local, expected, AREA));
}

int main(int argc, char **argv) {
  int round, kind, form;
  start(&argc, &argv, NULL, 0, 4 * AREA);
  local = (char *)malloc(AREA);
  found = (char *)malloc(AREA);
  expected = (char *)malloc(AREA);
  CHECK(local && found && expected);
  for (round = 0; round < ROUNDS; ++round)
    for (kind = 0; kind < KINDS; ++kind)
      for (form = 0; form < FORMS; ++form) {
        put_and_get(kind, form, neighbour(1), at(neighbour(1), 0));
        if (round % 4 == 0) put_and_get(kind, form, me, at(me, 2 * AREA));
      }
  free(local);
  free(found);
  free(expected);
  finish();
  return 0;
}
