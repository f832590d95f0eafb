/* GASNet-1's extended interface: puts, gets and memset as blocking calls, with handles and as
 * implicit operations, as well as values and access regions. */
#include "legacy_start.h"

#define BYTES ((size_t)3000)
#define OPS 12
#define SEGMENT ((uintptr_t)1 << 18)

static char source[OPS][BYTES], back[OPS][BYTES];

/* Returns where operation `op` of this node writes at another node. Each node is written by its
 * left neighbour and by itself, in one half of the segment each. */
static char *there(gasnet_node_t node, int op) { return at(node, (node == me ? SEGMENT / 2 : 0) + op * BYTES + 1); }

static void fill_all(unsigned int message) {
  int i;
  for (i = 0; i < OPS; ++i) fill(source[i], BYTES, message + i);
}

static void check_there(gasnet_node_t node, unsigned int message) {
  int i;
  memset(back, 0, sizeof(back));
  for (i = 0; i < OPS; ++i) {
    if (i % 2) gasnet_get(back[i], node, there(node, i), BYTES);
    else gasnet_get_bulk(back[i], node, there(node, i), BYTES);
    check_filled(back[i], BYTES, message + i);
  }
}

static void blocking(gasnet_node_t node) {
  int i;
  fill_all(1);
  for (i = 0; i < OPS; ++i) {
    if (i % 2) gasnet_put(node, there(node, i), source[i], BYTES);
    else gasnet_put_bulk(node, there(node, i), source[i], BYTES);
  }
  memset(source, 0, sizeof(source));
  check_there(node, 1);
}

static void check_invalid(const gasnet_handle_t *handles) {
  int i;
  for (i = 0; i < OPS; ++i) CHECK(handles[i] == GASNET_INVALID_HANDLE);
}

static int under_way(const gasnet_handle_t *handles) {
  int i, count = 0;
  for (i = 0; i < OPS; ++i) count += handles[i] != GASNET_INVALID_HANDLE;
  return count;
}

/* Synchronises the handles of an array. `way` selects the call. */
static void synchronise(gasnet_handle_t *handles, int way) {
  int i;
  switch (way) {
    case 0:
      for (i = 0; i < OPS; ++i) gasnet_wait_syncnb(handles[i]);
      return;
    case 1: gasnet_wait_syncnb_all(handles, OPS); break;
    case 2:
      while (under_way(handles)) gasnet_wait_syncnb_some(handles, OPS);
      break;
    case 3:
      for (i = 0; i < OPS; ++i)
        while (gasnet_try_syncnb(handles[i]) != GASNET_OK) {
        }
      return;
    case 4:
      while (gasnet_try_syncnb_all(handles, OPS) != GASNET_OK) {
      }
      break;
    case 5:
      while (under_way(handles)) {
        const int before = under_way(handles), result = gasnet_try_syncnb_some(handles, OPS);
        CHECK(result == GASNET_OK || result == GASNET_ERR_NOT_READY);
        CHECK_EQ(result == GASNET_OK, under_way(handles) < before);
      }
      break;
    case 6:
      for (i = 0; i < OPS; ++i)
        while (gasnet_try_syncnb_nopoll(handles[i]) != GASNET_OK) gasnet_AMPoll();
      return;
    case 7:
      while (gasnet_try_syncnb_all_nopoll(handles, OPS) != GASNET_OK) gasnet_AMPoll();
      break;
    default:
      while (under_way(handles)) {
        gasnet_try_syncnb_some_nopoll(handles, OPS);
        gasnet_AMPoll();
      }
  }
  check_invalid(handles);
}

static void explicit_handles(gasnet_node_t node) {
  gasnet_handle_t handles[OPS];
  int way, i;
  for (way = 0; way < 9; ++way) {
    fill_all(10 + way);
    for (i = 0; i < OPS; ++i) {
      if (i % 2) {
        handles[i] = gasnet_put_nb(node, there(node, i), source[i], BYTES);
        /* The source may be reused when the call returns. */
        memset(source[i], 0, BYTES);
      } else handles[i] = gasnet_put_nb_bulk(node, there(node, i), source[i], BYTES);
    }
    synchronise(handles, way);
    check_there(node, 10 + way);
    memset(back, 0, sizeof(back));
    for (i = 0; i < OPS; ++i) {
      if (i % 2) handles[i] = gasnet_get_nb(back[i], node, there(node, i), BYTES);
      else handles[i] = gasnet_get_nb_bulk(back[i], node, there(node, i), BYTES);
    }
    synchronise(handles, way);
    for (i = 0; i < OPS; ++i) check_filled(back[i], BYTES, 10 + way + i);
  }
  for (i = 0; i < OPS; ++i) handles[i] = GASNET_INVALID_HANDLE;
  gasnet_wait_syncnb(GASNET_INVALID_HANDLE);
  gasnet_wait_syncnb_all(handles, OPS);
  gasnet_wait_syncnb_some(handles, OPS);
  CHECK_EQ(gasnet_try_syncnb(GASNET_INVALID_HANDLE), GASNET_OK);
  CHECK_EQ(gasnet_try_syncnb_all(handles, OPS), GASNET_OK);
  CHECK_EQ(gasnet_try_syncnb_some(handles, OPS), GASNET_OK);
}

static void implicit_handles(gasnet_node_t node) {
  int i, way;
  for (way = 0; way < 4; ++way) {
    fill_all(30 + way);
    for (i = 0; i < OPS; ++i) {
      if (i % 2) {
        gasnet_put_nbi(node, there(node, i), source[i], BYTES);
        memset(source[i], 0, BYTES);
      } else gasnet_put_nbi_bulk(node, there(node, i), source[i], BYTES);
    }
    /* No get is in flight, so this must succeed. */
    CHECK_EQ(gasnet_try_syncnbi_gets_nopoll(), GASNET_OK);
    switch (way) {
      case 0: gasnet_wait_syncnbi_puts(); break;
      case 1:
        while (gasnet_try_syncnbi_puts() != GASNET_OK) {
        }
        break;
      case 2:
        while (gasnet_try_syncnbi_puts_nopoll() != GASNET_OK) gasnet_AMPoll();
        break;
      default: gasnet_wait_syncnbi_all();
    }
    check_there(node, 30 + way);
    memset(back, 0, sizeof(back));
    for (i = 0; i < OPS; ++i) {
      if (i % 2) gasnet_get_nbi(back[i], node, there(node, i), BYTES);
      else gasnet_get_nbi_bulk(back[i], node, there(node, i), BYTES);
    }
    CHECK_EQ(gasnet_try_syncnbi_puts_nopoll(), GASNET_OK);
    switch (way) {
      case 0: gasnet_wait_syncnbi_gets(); break;
      case 1:
        while (gasnet_try_syncnbi_gets() != GASNET_OK) {
        }
        break;
      case 2:
        while (gasnet_try_syncnbi_all() != GASNET_OK) {
        }
        break;
      default:
        while (gasnet_try_syncnbi_all_nopoll() != GASNET_OK) gasnet_AMPoll();
    }
    for (i = 0; i < OPS; ++i) check_filled(back[i], BYTES, 30 + way + i);
  }
}

static void memsets(gasnet_node_t node) {
  const size_t sizes[] = {0, 1, 7, 64, BYTES};
  int way;
  size_t i, j;
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i)
    for (way = 0; way < 3; ++way) {
      memset(source[0], 0, BYTES);
      gasnet_put(node, there(node, 0), source[0], BYTES);
      /* Only the low-order byte of the value is written. */
      if (way == 0) gasnet_memset(node, there(node, 0), 0x1234, sizes[i]);
      if (way == 1) gasnet_wait_syncnb(gasnet_memset_nb(node, there(node, 0), 0x34, sizes[i]));
      if (way == 2) {
        gasnet_memset_nbi(node, there(node, 0), 0x34, sizes[i]);
        gasnet_wait_syncnbi_puts();
      }
      gasnet_get(back[0], node, there(node, 0), BYTES);
      for (j = 0; j < BYTES; ++j) CHECK_EQ(back[0][j], j < sizes[i] ? 0x34 : 0);
    }
}

static void values(gasnet_node_t node) {
  size_t bytes;
  int i;
  for (bytes = 1; bytes <= SIZEOF_GASNET_REGISTER_VALUE_T; ++bytes) {
    const gasnet_register_value_t value = 0xF1E2D3C4B5A69788U;
    const gasnet_register_value_t kept =
      bytes == 8 ? value : value & (((gasnet_register_value_t)1 << 8 * bytes) - 1);
    gasnet_valget_handle_t handles[OPS];
    for (i = 0; i < 3; ++i) {
      gasnet_memset(node, there(node, 0), 0, 16);
      if (i == 0) gasnet_put_val(node, there(node, 0), value, bytes);
      if (i == 1) gasnet_wait_syncnb(gasnet_put_nb_val(node, there(node, 0), value, bytes));
      if (i == 2) {
        gasnet_put_nbi_val(node, there(node, 0), value, bytes);
        gasnet_wait_syncnbi_all();
      }
      CHECK_EQ(gasnet_get_val(node, there(node, 0), bytes), kept);
      CHECK_EQ(gasnet_get_val(node, there(node, 0) + bytes, 8), 0);
    }
    /* Several gets are in flight and are waited for in another order. */
    for (i = 0; i < OPS; ++i) gasnet_put_val(node, there(node, i), value + i, bytes);
    for (i = 0; i < OPS; ++i) handles[i] = gasnet_get_nb_val(node, there(node, i), bytes);
    for (i = OPS - 1; i >= 0; --i) {
      const gasnet_register_value_t mask = bytes == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * bytes) - 1;
      CHECK_EQ(gasnet_wait_syncnb_valget(handles[i]), (value + i) & mask);
    }
  }
}

static void regions(gasnet_node_t node) {
  gasnet_handle_t handle;
  int i;
  fill_all(60);
  gasnet_begin_nbi_accessregion();
  for (i = 0; i < OPS; ++i) gasnet_put_nbi_bulk(node, there(node, i), source[i], BYTES);
  gasnet_memset_nbi(node, there(node, OPS), 1, 10);
  handle = gasnet_end_nbi_accessregion();
  CHECK_EQ(gasnet_try_syncnbi_all_nopoll(), GASNET_OK);
  gasnet_wait_syncnb(handle);
  check_there(node, 60);
  gasnet_begin_nbi_accessregion();
  handle = gasnet_end_nbi_accessregion();
  CHECK_EQ(gasnet_try_syncnb(handle), GASNET_OK);
  memset(back, 0, sizeof(back));
  gasnet_begin_nbi_accessregion();
  for (i = 0; i < OPS; ++i) gasnet_get_nbi(back[i], node, there(node, i), BYTES);
  handle = gasnet_end_nbi_accessregion();
  while (gasnet_try_syncnb(handle) != GASNET_OK) {
  }
  for (i = 0; i < OPS; ++i) check_filled(back[i], BYTES, 60 + i);
}

/* Makes a bad call. The error must name the function that was called. */
static void bad(const char *call) {
  char *const segment = at(me, 0);
  if (!strcmp(call, "gasnet_put")) gasnet_put_bulk(nodes, segment, source[0], 1);
  else if (!strcmp(call, "gasnet_get")) gasnet_get(back[0], nodes, segment, 1);
  else if (!strcmp(call, "gasnet_put_nb")) (void)gasnet_put_nb(nodes, segment, source[0], 1);
  else if (!strcmp(call, "gasnet_get_nbi")) gasnet_get_nbi_bulk(back[0], nodes, segment, 1);
  else if (!strcmp(call, "gasnet_put_val")) gasnet_put_val(nodes, segment, 1, 1);
  else if (!strcmp(call, "gasnet_end_nbi_accessregion")) (void)gasnet_end_nbi_accessregion();
}

#if !GASNET_NULL_ARGV_OK
  #error "init must accept null arguments"
#endif

int main(int argc, char **argv) {
  gasnet_node_t peers[2];
  int i;
  start(NULL, NULL, NULL, 0, SEGMENT);
  if (argc > 1) {
    bad(argv[1]);
    return 3;
  }
  peers[0] = neighbour(1);
  peers[1] = me;
  for (i = 0; i < 2; ++i) {
    blocking(peers[i]);
    explicit_handles(peers[i]);
    implicit_handles(peers[i]);
    memsets(peers[i]);
    values(peers[i]);
    regions(peers[i]);
    barrier();
  }
  finish();
  return 0;
}
