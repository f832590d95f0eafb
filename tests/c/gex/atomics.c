/* Remote atomics. Every operation runs on every type, with constant and variable opcodes, with
 * events, as an implicit operation and in access regions. All ranks use one number at once. Domains
 * and their queries are tested too. */
#include <gasnet_ratomic.h>

#include "start.h"

#define SEGMENT ((uintptr_t)65536)
/* The segment begins with a page of numbers that all ranks use at once. 512 bytes for each rank
 * follow. */
#define SHARED 0
#define OWN(rank) (4096 + 512 * (size_t)(rank))
#define ROUNDS 200

static const gex_OP_t arithmetic = GEX_OP_ADD | GEX_OP_SUB | GEX_OP_MULT | GEX_OP_MIN | GEX_OP_MAX | GEX_OP_INC | GEX_OP_DEC |
                                   GEX_OP_FADD | GEX_OP_FSUB | GEX_OP_FMULT | GEX_OP_FMIN | GEX_OP_FMAX | GEX_OP_FINC |
                                   GEX_OP_FDEC | GEX_OP_SET | GEX_OP_CAS | GEX_OP_SWAP | GEX_OP_FCAS | GEX_OP_GET;
static const gex_OP_t bitwise = GEX_OP_AND | GEX_OP_OR | GEX_OP_XOR | GEX_OP_FAND | GEX_OP_FOR | GEX_OP_FXOR;

/* Holds an opcode that the compiler doesn't know. */
static volatile gex_OP_t unknown;

/* Runs an operation in each way on a number that is `old`, and checks the number's new value and
 * the value fetched. `by` is the opcode that is passed to the call. */
#define ONCE(T, type, by, old, first, second, left, fetches)                                                  \
  do {                                                                                                        \
    type word = (old), result = 77;                                                                           \
    int way;                                                                                                  \
    for (way = 0; way < 4; ++way) {                                                                           \
      gex_Event_Wait(gex_AD_OpNB_##T(ad, NULL, peer, at, GEX_OP_SET, word, 0, 0));                            \
      result = 77;                                                                                            \
      if (way == 0) {                                                                                         \
        gex_Event_Wait(gex_AD_OpNB_##T(ad, &result, peer, at, (by), (first), (second), 0));                   \
      } else if (way == 1) {                                                                                  \
        CHECK_EQ(gex_AD_OpNBI_##T(ad, &result, peer, at, (by), (first), (second), GEX_FLAG_AD_ACQ), 0);       \
        gex_NBI_Wait((by) == GEX_OP_SET ? GEX_EC_PUT : (by) == GEX_OP_GET ? GEX_EC_GET : GEX_EC_RMW, 0);      \
      } else if (way == 2) {                                                                                  \
        gex_Event_t event;                                                                                    \
        const gex_Flags_t flags = GEX_FLAG_IMMEDIATE | GEX_FLAG_RANK_IS_JOBRANK;                              \
        while ((event = gex_AD_OpNB_##T(ad, &result, peer, at, (by), (first), (second), flags)) ==            \
               GEX_EVENT_NO_OP)                                                                               \
          gasnet_AMPoll();                                                                                    \
        gex_Event_Wait(event);                                                                                \
      } else {                                                                                                \
        gex_NBI_BeginAccessRegion(0);                                                                         \
        while (gex_AD_OpNBI_##T(ad, &result, peer, at, (by), (first), (second), GEX_FLAG_IMMEDIATE))          \
          gasnet_AMPoll();                                                                                    \
        gex_Event_Wait(gex_NBI_EndAccessRegion(0));                                                           \
      }                                                                                                       \
      CHECK(result == ((fetches) ? word : 77));                                                               \
      gex_Event_Wait(gex_AD_OpNB_##T(ad, &result, peer, at, GEX_OP_GET, 5, 6, GEX_FLAG_AD_REL));              \
      CHECK(result == (left));                                                                                \
    }                                                                                                         \
  } while (0)

/* Runs an operation with a constant opcode, and with an opcode that the compiler doesn't know. */
#define BOTH(T, type, op, old, first, second, left, fetches)               \
  do {                                                                     \
    ONCE(T, type, op, old, first, second, left, fetches);                  \
    unknown = (op);                                                        \
    ONCE(T, type, unknown, old, first, second, left, fetches);             \
  } while (0)

/* Tests an operation and the fetching form of it. */
#define PAIR(T, type, op, fetching, old, first, second, left)              \
  do {                                                                     \
    CHECK_EQ(GEX_OP_TO_FETCHING(op), fetching);                            \
    BOTH(T, type, op, old, first, second, left, 0);                        \
    BOTH(T, type, fetching, old, first, second, left, 1);                  \
  } while (0)

#define ARITHMETIC(T, type)                                                \
  do {                                                                     \
    PAIR(T, type, GEX_OP_ADD, GEX_OP_FADD, 40, 2, 9, 42);                  \
    PAIR(T, type, GEX_OP_SUB, GEX_OP_FSUB, 40, 2, 9, 38);                  \
    PAIR(T, type, GEX_OP_MULT, GEX_OP_FMULT, 40, 3, 9, 120);               \
    PAIR(T, type, GEX_OP_MIN, GEX_OP_FMIN, 40, 3, 9, 3);                   \
    PAIR(T, type, GEX_OP_MIN, GEX_OP_FMIN, 3, 40, 9, 3);                   \
    PAIR(T, type, GEX_OP_MAX, GEX_OP_FMAX, 40, 3, 9, 40);                  \
    PAIR(T, type, GEX_OP_MAX, GEX_OP_FMAX, 3, 40, 9, 40);                  \
    PAIR(T, type, GEX_OP_INC, GEX_OP_FINC, 40, 3, 9, 41);                  \
    PAIR(T, type, GEX_OP_DEC, GEX_OP_FDEC, 40, 3, 9, 39);                  \
    PAIR(T, type, GEX_OP_SET, GEX_OP_SWAP, 40, 3, 9, 3);                   \
    PAIR(T, type, GEX_OP_CAS, GEX_OP_FCAS, 40, 40, 9, 9);                  \
    PAIR(T, type, GEX_OP_CAS, GEX_OP_FCAS, 40, 41, 9, 40);                 \
    BOTH(T, type, GEX_OP_GET, 40, 3, 9, 40, 1);                            \
  } while (0)

#define BITWISE(T, type)                                                   \
  do {                                                                     \
    PAIR(T, type, GEX_OP_AND, GEX_OP_FAND, 12, 10, 9, 8);                  \
    PAIR(T, type, GEX_OP_OR, GEX_OP_FOR, 12, 10, 9, 14);                   \
    PAIR(T, type, GEX_OP_XOR, GEX_OP_FXOR, 12, 10, 9, 6);                  \
    /* Wraps without changing nearby bytes. */                   \
    PAIR(T, type, GEX_OP_ADD, GEX_OP_FADD, (type)-1, 2, 0, 1);             \
  } while (0)

/* Runs an operation of each kind on a number of each type at a peer. */
#define TYPE(T, type, ops, more)                                           \
  static void all_##T(gex_Rank_t peer) {                                   \
    char *const at = base[peer] + OWN(me) + 8;                             \
    uint64_t before = 0, after = 0;                                        \
    gex_AD_t ad = GEX_AD_INVALID;                                          \
    gex_AD_Create(&ad, team, GEX_DT_##T, ops, 0);                          \
    CHECK(ad != GEX_AD_INVALID);                                           \
    ARITHMETIC(T, type);                                                   \
    more;                                                                  \
    gex_RMA_GetBlocking(team, &before, peer, at - 8, 8, 0);                \
    gex_RMA_GetBlocking(team, &after, peer, at + sizeof(type), 8, 0);      \
    CHECK(before == 0 && after == 0);                                      \
    after = 0;                                                             \
    gex_RMA_PutBlocking(team, peer, at, &after, 8, 0);                     \
    gex_AD_Destroy(ad);                                                    \
  }

TYPE(I32, int32_t, arithmetic | bitwise,
     BITWISE(I32, int32_t);
     PAIR(I32, int32_t, GEX_OP_MIN, GEX_OP_FMIN, 3, -4, 0, -4))
TYPE(U32, uint32_t, arithmetic | bitwise,
     BITWISE(U32, uint32_t);
     PAIR(U32, uint32_t, GEX_OP_MIN, GEX_OP_FMIN, 3, (uint32_t)-4, 0, 3))
TYPE(I64, int64_t, arithmetic | bitwise,
     BITWISE(I64, int64_t);
     PAIR(I64, int64_t, GEX_OP_MAX, GEX_OP_FMAX, -3, ((int64_t)1 << 40), 0, ((int64_t)1 << 40)))
TYPE(U64, uint64_t, arithmetic | bitwise,
     BITWISE(U64, uint64_t);
     PAIR(U64, uint64_t, GEX_OP_MAX, GEX_OP_FMAX, 3, (uint64_t)-4, 0, (uint64_t)-4))
TYPE(FLT, float, arithmetic, PAIR(FLT, float, GEX_OP_MULT, GEX_OP_FMULT, 1.5f, -0.25f, 0, -0.375f))
TYPE(DBL, double, arithmetic, PAIR(DBL, double, GEX_OP_ADD, GEX_OP_FADD, 1e-3, 1e20, 0, 1e20))

/* All ranks run atomics at once. Operations that the headers implement, other operations, and
 * operations that travel in messages must be atomic with respect to each other. */
static void together(void) {
  char *const at = base[0] + SHARED;
  static uint64_t tickets[2 * ROUNDS];
  uint64_t seen = 0;
  int64_t i;
  int64_t total = -1;
  double sum = 0;
  gex_AD_t counts, sums, marks;
  const uint32_t one = 1;
  gex_AD_Create(&counts, team, GEX_DT_U64, GEX_OP_FINC | GEX_OP_FADD | GEX_OP_INC | GEX_OP_FCAS | GEX_OP_GET, 0);
  gex_AD_Create(&sums, team, GEX_DT_DBL, GEX_OP_ADD | GEX_OP_FCAS | GEX_OP_GET, GEX_FLAG_AD_FAVOR_MY_NBRHD);
  gex_AD_Create(&marks, team, GEX_DT_U32, GEX_OP_OR | GEX_OP_GET, GEX_FLAG_AD_FAVOR_REMOTE);
  barrier();
  for (i = 0; i < ROUNDS; ++i) {
    double found, guess = 0;
    CHECK_EQ(gex_AD_OpNBI_U64(counts, &tickets[2 * i], 0, at, GEX_OP_FINC, 0, 0, 0), 0);
    unknown = GEX_OP_FADD;
    CHECK_EQ(gex_AD_OpNBI_U64(counts, &tickets[2 * i + 1], 0, at, unknown, 1, 0, 0), 0);
    gex_Event_Wait(gex_AD_OpNB_DBL(sums, NULL, 0, at + 8, GEX_OP_ADD, 0.25, 0, 0));
    /* This loop adds by compare-and-swap. */
    do {
      found = guess;
      gex_Event_Wait(gex_AD_OpNB_DBL(sums, &guess, 0, at + 8, GEX_OP_FCAS, found, found + 0.5, 0));
    } while (guess != found);
    CHECK_EQ(gex_AD_OpNBI_U32(marks, NULL, 0, at + 16, GEX_OP_OR, one << (me % 32), 0, 0), 0);
    CHECK_EQ(gex_AD_OpNBI_U64(counts, NULL, 0, at + 24, GEX_OP_INC, 0, 0, 0), 0);
  }
  gex_NBI_Wait(GEX_EC_RMW, 0);
  CHECK_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
  barrier();
  gex_Event_Wait(gex_AD_OpNB_U64(counts, (uint64_t *)&total, 0, at, GEX_OP_GET, 0, 0, 0));
  CHECK_EQ(total, 2 * ROUNDS * (int64_t)size);
  gex_Event_Wait(gex_AD_OpNB_U64(counts, &seen, 0, at + 24, GEX_OP_GET, 0, 0, 0));
  CHECK_EQ(seen, ROUNDS * (uint64_t)size);
  gex_Event_Wait(gex_AD_OpNB_DBL(sums, &sum, 0, at + 8, GEX_OP_GET, 0, 0, 0));
  CHECK(sum == 0.75 * ROUNDS * size);
  {
    uint32_t mark = 0;
    gex_Event_Wait(gex_AD_OpNB_U32(marks, &mark, 0, at + 16, GEX_OP_GET, 0, 0, 0));
    CHECK_EQ(mark, size < 32 ? (one << size) - 1 : UINT32_MAX);
  }
  /* No two ranks may have the same ticket. For each of its tickets, a rank puts a byte at the
   * ticket's place in rank 0's segment. */
  for (i = 0; i < 2 * ROUNDS; ++i) {
    unsigned char there = 0, mine = 1;
    CHECK(tickets[i] < 2 * ROUNDS * (uint64_t)size);
    gex_RMA_GetBlocking(team, &there, 0, base[0] + 16384 + tickets[i], 1, 0);
    CHECK_EQ(there, 0);
    gex_RMA_PutBlocking(team, 0, base[0] + 16384 + tickets[i], &mine, 1, 0);
  }
  barrier();
  gex_AD_Destroy(counts);
  gex_AD_Destroy(sums);
  gex_AD_Destroy(marks);
}

/* A rank that reads a flag with an acquire, after a peer has set it with a release, must see the
 * peer's data. */
static void ordered(void) {
  const gex_Rank_t right = neighbour(1);
  char *const flag = base[right] + SHARED + 64, *const own = base[me] + SHARED + 64;
  gex_AD_t ad;
  int64_t i, seen = 0;
  gex_AD_Create(&ad, team, GEX_DT_I64, GEX_OP_SET | GEX_OP_GET, GEX_FLAG_AD_FAVOR_MY_RANK);
  for (i = 1; i <= 50; ++i) {
    gex_RMA_PutBlocking(team, right, flag + 8, &i, sizeof(i), 0);
    CHECK_EQ(gex_AD_OpNBI_I64(ad, NULL, right, flag, GEX_OP_SET, i, 0, GEX_FLAG_AD_REL), 0);
    gex_NBI_Wait(GEX_EC_PUT, 0);
    do {
      gasnet_AMPoll();
      gex_Event_Wait(gex_AD_OpNB_I64(ad, &seen, me, own, GEX_OP_GET, 0, 0,
                                     GEX_FLAG_AD_ACQ | GEX_FLAG_AD_MY_RANK));
    } while (seen < i);
    memcpy(&seen, own + 8, sizeof(seen));
    CHECK_EQ(seen, i);
    barrier();
  }
  gex_AD_Destroy(ad);
}

/* Returns hints, or flags about the segments of addresses. None of them may change a result. */
static gex_Flags_t flags_of(int domain) {
  switch (domain % 3) {
    case 0: return GEX_FLAG_AD_FAVOR_REMOTE;
    case 1: return GEX_FLAG_AD_FAVOR_MY_RANK | GEX_FLAG_SELF_SEG_UNKNOWN | GEX_FLAG_PEER_SEG_OFFSET;
    default: return 0;
  }
}

static void domains(void) {
  gex_AD_t all[100];
  int word, i, round;
  int64_t result = 0;
  for (round = 0; round < 3; ++round) {
    for (i = 0; i < 100; ++i) {
      const gex_DT_t type = i % 2 ? GEX_DT_I64 : GEX_DT_FLT;
      gex_AD_Create(&all[i], team, type, GEX_OP_FADD | GEX_OP_GET, flags_of(i));
      CHECK(gex_AD_QueryCData(all[i]) == NULL);
      gex_AD_SetCData(all[i], &word + (i & 1));
    }
    for (i = 0; i < 100; ++i) {
      CHECK(gex_AD_QueryTM(all[i]) == team);
      CHECK_EQ(gex_AD_QueryDT(all[i]), i % 2 ? GEX_DT_I64 : GEX_DT_FLT);
      CHECK_EQ(gex_AD_QueryOps(all[i]), GEX_OP_FADD | GEX_OP_GET);
      CHECK_EQ(gex_AD_QueryFlags(all[i]), flags_of(i));
      CHECK(gex_AD_QueryCData(all[i]) == &word + (i & 1));
    }
    /* Operates on this rank's number, and then on the numbers of all ranks in the neighbourhood. */
    gex_Event_Wait(gex_AD_OpNB_I64(all[1], &result, me, base[me] + SHARED + 128, GEX_OP_FADD, 1, 0, GEX_FLAG_AD_MY_RANK));
    CHECK_EQ(result, round);
    {
      gex_RankInfo_t *near;
      gex_Rank_t count, mine, rank;
      gex_System_QueryNbrhdInfo(&near, &count, &mine);
      for (rank = 0; rank < count; ++rank)
        gex_Event_Wait(gex_AD_OpNB_I64(all[3], &result, near[rank].gex_jobrank, base[near[rank].gex_jobrank] + SHARED + 136,
                                       GEX_OP_FADD, 1, 0, GEX_FLAG_AD_MY_NBRHD));
    }
    barrier();
    for (i = 0; i < 100; ++i) gex_AD_Destroy(all[i]);
  }
}

/* Uses domains of a team. A target rank is a rank in the team, unless a flag makes it a rank in the
 * job. */
static void of_a_team(void) {
  gex_TM_t half = GEX_TM_INVALID;
  gex_AD_t ad;
  int32_t result = -1;
  gex_Rank_t members, rank;
  gex_TM_Split(&half, team, (int)(me % 2), (int)me, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
  members = gex_TM_QuerySize(half);
  gex_AD_Create(&ad, half, GEX_DT_I32, GEX_OP_ADD | GEX_OP_FINC | GEX_OP_GET, 0);
  CHECK(gex_AD_QueryTM(ad) == half);
  for (rank = 0; rank < members; ++rank) {
    const gex_Rank_t there = gex_TM_TranslateRankToJobrank(half, rank);
    char *const at = base[there] + SHARED + 192;
    gex_Event_Wait(gex_AD_OpNB_I32(ad, NULL, rank, at, GEX_OP_ADD, 1000, 0, 0));
    CHECK_EQ(gex_AD_OpNBI_I32(ad, &result, there, at, GEX_OP_FINC, 0, 0, GEX_FLAG_RANK_IS_JOBRANK), 0);
    gex_NBI_Wait(GEX_EC_RMW, 0);
    CHECK(result >= 1000);
  }
  gex_Event_Wait(gex_AD_OpNB_I32(ad, &result, gex_TM_QueryRank(half), base[me] + SHARED + 192, GEX_OP_GET, 0, 0,
                                 GEX_FLAG_AD_MY_RANK));
  CHECK(result >= 1001);
  barrier();
  gex_Event_Wait(gex_AD_OpNB_I32(ad, &result, me, base[me] + SHARED + 192, GEX_OP_GET, 0, 0, GEX_FLAG_RANK_IS_JOBRANK));
  CHECK_EQ(result, 1001 * (int64_t)members);
  barrier();
  gex_AD_Destroy(ad);
  gex_TM_Destroy(half, NULL, 0);
}

int main(int argc, char **argv) {
  gex_Rank_t distance;
  start(&argc, &argv, NULL, 0, SEGMENT);
  memset(base[me], 0, SEGMENT);
  barrier();
  if (argc > 1) {
    /* The ranks pass different operations, which must end the job. */
    gex_AD_t ad;
    gex_AD_Create(&ad, team, GEX_DT_I32, me ? GEX_OP_ADD : GEX_OP_SUB, 0);
    gasnet_exit(CHECK_FAILED);
  }
  for (distance = 0; distance < (size < 3 ? size : 3); ++distance) {
    const gex_Rank_t peer = neighbour(distance);
    all_I32(peer);
    all_U32(peer);
    all_I64(peer);
    all_U64(peer);
    all_FLT(peer);
    all_DBL(peer);
  }
  barrier();
  together();
  ordered();
  domains();
  of_a_team();
  finish();
  return 0;
}
