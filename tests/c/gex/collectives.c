/* Broadcasts and reductions of every type and operation, from one element to many messages, some of
 * them several at once. */
#include <gasnet_coll.h>

#include <stdio.h>
#include <string.h>

#define LONGEST 20000
#define UNDER_WAY 8

static gex_TM_t team;
static uint32_t rank, size;

static void fail(const char *what, size_t number) {
  fprintf(stderr, "rank %u of %u: %s, case %lu\n", (unsigned)rank, (unsigned)size, what, (unsigned long)number);
  gasnet_exit(1);
}

/* Returns a rank's operand. Operands are so small that sums and products of up to 12 ranks are
 * exact in every type. */
static int given(uint32_t from, size_t place) { return (int)((from + place) % 3) + 1; }

static double reduced(gex_OP_t op, size_t place) {
  double result = given(0, place);
  uint32_t from;
  for (from = 1; from < size; from++) {
    int next = given(from, place);
    switch (op) {
      case GEX_OP_ADD: result += next; break;
      case GEX_OP_MULT: result *= next; break;
      case GEX_OP_MIN: result = next < result ? next : result; break;
      case GEX_OP_MAX: result = next > result ? next : result; break;
      case GEX_OP_AND: result = (int)result & next; break;
      case GEX_OP_OR: result = (int)result | next; break;
      default: result = (int)result ^ next; break;
    }
  }
  return result;
}

#define TYPED(name, type)                                                                \
  static void set_##name(void *at, size_t place, double value) { ((type *)at)[place] = (type)value; } \
  static double get_##name(const void *at, size_t place) { return (double)((const type *)at)[place]; }
TYPED(i32, int32_t)
TYPED(u32, uint32_t)
TYPED(i64, int64_t)
TYPED(u64, uint64_t)
TYPED(flt, float)
TYPED(dbl, double)

static const struct {
  gex_DT_t type;
  size_t bytes;
  void (*set)(void *, size_t, double);
  double (*get)(const void *, size_t);
} types[] = {
  { GEX_DT_I32, 4, set_i32, get_i32 }, { GEX_DT_U32, 4, set_u32, get_u32 }, { GEX_DT_I64, 8, set_i64, get_i64 },
  { GEX_DT_U64, 8, set_u64, get_u64 }, { GEX_DT_FLT, 4, set_flt, get_flt }, { GEX_DT_DBL, 8, set_dbl, get_dbl }
};
static const gex_OP_t operations[] = { GEX_OP_ADD, GEX_OP_MULT, GEX_OP_MIN, GEX_OP_MAX,
                                       GEX_OP_AND, GEX_OP_OR, GEX_OP_XOR };
static const size_t counts[] = { 1, 77, LONGEST };

static void known(size_t type, gex_OP_t op, size_t count, uint32_t root, int to_all) {
  static uint64_t source[LONGEST], result[LONGEST];
  gex_Event_t event;
  size_t i;
  for (i = 0; i < count; i++) types[type].set(source, i, given(rank, i));
  if (to_all) {
    event = gex_Coll_ReduceToAllNB(team, result, source, types[type].type, types[type].bytes, count, op, NULL, NULL, 0);
  } else {
    event = gex_Coll_ReduceToOneNB(team, root, result, source, types[type].type, types[type].bytes, count, op, NULL,
                                   NULL, 0);
  }
  gex_Event_Wait(event);
  if (!to_all && rank != root) return;
  for (i = 0; i < count; i++)
    if (types[type].get(result, i) != reduced(op, i)) fail("wrong result", type * 1000 + op);
}

/* An element that is larger than a message. */
typedef struct {
  uint32_t numbers[10000];
} large_t;

static void add_large(const void *left, void *right, size_t count, const void *cdata) {
  size_t i, j;
  if (cdata != (const void *)&team) fail("wrong cdata", 0);
  for (i = 0; i < count; i++)
    for (j = 0; j < 10000; j++) ((large_t *)right)[i].numbers[j] += ((const large_t *)left)[i].numbers[j];
}

static void user(void) {
  const gex_Coll_ReduceFn_t add = add_large;
  static large_t value[3];
  size_t i, j;
  for (i = 0; i < 3; i++)
    for (j = 0; j < 10000; j++) value[i].numbers[j] = (uint32_t)(rank + i * j);
  gex_Event_Wait(gex_Coll_ReduceToAllNB(team, value, value, GEX_DT_USER, sizeof(large_t), 3, GEX_OP_USER, add,
                                        (void *)&team, 0));
  for (i = 0; i < 3; i++)
    for (j = 0; j < 10000; j++)
      if (value[i].numbers[j] != (uint32_t)(size * (size - 1) / 2 + size * i * j)) fail("wrong sum of large elements", i);
}

/* A range of ranks. `in_order` tells whether they were combined in order. */
typedef struct {
  uint32_t first, last, in_order;
} ranks_t;

static void join_ranks(const void *left, void *right, size_t count, const void *cdata) {
  const ranks_t *const before = (const ranks_t *)left;
  ranks_t *const after = (ranks_t *)right;
  size_t i;
  if (cdata != (const void *)&team) fail("wrong cdata", 1);
  for (i = 0; i < count; i++) {
    after[i].in_order &= before[i].in_order && before[i].last + 1 == after[i].first;
    after[i].first = before[i].first;
  }
}

static void in_order(size_t count, uint32_t root, int to_all, int in_place) {
  static ranks_t source[LONGEST], result[LONGEST];
  ranks_t *const given = in_place ? result : source;
  void *const word = (void *)&team;
  size_t i;
  memset(result, 0, sizeof result);
  for (i = 0; i < count; i++) {
    given[i].first = given[i].last = rank;
    given[i].in_order = 1;
  }
  if (to_all) {
    gex_Event_Wait(gex_Coll_ReduceToAllNB(team, result, given, GEX_DT_USER, sizeof(ranks_t), count, GEX_OP_USER_NC, join_ranks,
                                          word, 0));
  } else {
    gex_Event_Wait(gex_Coll_ReduceToOneNB(team, root, rank == root ? result : NULL, given, GEX_DT_USER, sizeof(ranks_t), count,
                                          GEX_OP_USER_NC, join_ranks, word, 0));
  }
  if (!to_all && rank != root) return;
  for (i = 0; i < count; i++)
    if (result[i].first != 0 || result[i].last != size - 1 || !result[i].in_order) fail("ranks in the wrong order", i);
}

/* Starts several operations of all kinds at once and synchronises them in reverse order. */
static void together(void) {
  static uint64_t source[UNDER_WAY][LONGEST], result[UNDER_WAY][LONGEST];
  gex_Event_t events[UNDER_WAY];
  size_t number, i, count;
  for (number = 0; number < UNDER_WAY; number++) {
    uint32_t root = (uint32_t)number % size;
    count = counts[number % 3];
    for (i = 0; i < count; i++) source[number][i] = (uint64_t)given(rank, i + number);
    if (number % 2) {
      events[number] = gex_Coll_BroadcastNB(team, root, result[number], source[number], count * 8, 0);
    } else {
      events[number] = gex_Coll_ReduceToAllNB(team, result[number], source[number], GEX_DT_U64, 8, count, GEX_OP_ADD,
                                              NULL, NULL, 0);
    }
  }
  for (number = UNDER_WAY; number-- > 0;) {
    count = counts[number % 3];
    while (gex_Event_Test(events[number])) gasnet_AMPoll();
    for (i = 0; i < count; i++) {
      double expected = number % 2 ? given((uint32_t)number % size, i + number) : reduced(GEX_OP_ADD, i + number);
      if ((double)result[number][i] != expected) fail("wrong result of a concurrent operation", number);
    }
  }
}

int main(int argc, char **argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  size_t type, op, count;
  int to_all;
  if (gex_Client_Init(&client, &endpoint, &team, "collective", &argc, &argv, 0) != GASNET_OK) return 99;
  rank = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  for (type = 0; type < sizeof types / sizeof *types; type++)
    for (op = 0; op < sizeof operations / sizeof *operations; op++) {
      if (operations[op] <= GEX_OP_XOR && types[type].type >= GEX_DT_FLT) continue;
      for (count = 0; count < 3; count++)
        for (to_all = 0; to_all < 2; to_all++)
          known(type, operations[op], counts[count], (uint32_t)(type + op) % size, to_all);
    }
  user();
  for (count = 0; count < 3; count++)
    for (to_all = 0; to_all < 2; to_all++) {
      in_order(counts[count], 0, to_all, 0);
      in_order(counts[count], size - 1, to_all, 1);
      in_order(counts[count], size / 2, to_all, 0);
    }
  for (count = 0; count < 10; count++) together();
  gex_Coll_BarrierBlocking(team, 0);
  printf("rank %u of %u: all as expected\n", (unsigned)rank, (unsigned)size);
  gasnet_exit(0);
  return 0;
}
