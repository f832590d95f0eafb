/* Negotiated payload with every count of arguments, for requests and replies and for mediums and
 * longs. Uses the functions with the count in their names and the macros that count their
 * arguments, with and without flags of the commit. */
#include "start.h"

#include "args.h"

enum { MEDIUM, LONG, KINDS };
#define REQUEST(kind, n) ((gex_AM_Index_t)(GEX_AM_INDEX_BASE + (kind)*COUNTS + (n)))
#define REPLY(kind, n) ((gex_AM_Index_t)(GEX_AM_INDEX_BASE + (KINDS + (kind)) * COUNTS + (n)))
#define BYTES(n) ((size_t)(n)*11)

static int requested[KINDS][COUNTS], answered[KINDS][COUNTS];
/* Which of the four forms the next reply has, by kind and count. The forms are used in turn. */
static int forms[KINDS][COUNTS];

/* Returns the place for a long. Each sender has its own, because several peers send to one rank. */
static char *landing(gex_Rank_t at, gex_Rank_t from, int is_reply) { return base[at] + (2 * from + is_reply) * 256; }

static gex_Rank_t source_of(gex_Token_t token) {
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  return info.gex_srcrank;
}

static void check_payload(const void *at, size_t bytes, unsigned int n) {
  CHECK_EQ(bytes, BYTES(n));
  check_filled(at, bytes, n);
}

static gex_AM_SrcDesc_t filled(gex_AM_SrcDesc_t descriptor, unsigned int n) {
  fill(gex_AM_SrcDescAddr(descriptor), BYTES(n), n);
  return descriptor;
}

#define HANDLERS(n)                                                                                                    \
  static void medium_reply_to_##n(gex_Token_t token) {                                                                 \
    const gex_AM_SrcDesc_t d = filled(gex_AM_PrepareReplyMedium(token, NULL, BYTES(n), 300, NULL, 0, n), n);           \
    const gex_AM_Index_t handler = REPLY(MEDIUM, n);                                                                   \
    switch (forms[MEDIUM][n]++ % 4) {                                                                                  \
      case 0: gex_AM_CommitReplyMedium##n(d, handler, BYTES(n) ARGUMENTS_##n); break;                                  \
      case 1: gex_AM_CommitReplyMedium(d, handler, BYTES(n) ARGUMENTS_##n); break;                                     \
      case 2: CHECK_EQ(gex_AM_CommitReplyMedium##n##_v2(d, handler, BYTES(n), 0 ARGUMENTS_##n), 0); break;             \
      default: CHECK_EQ(gex_AM_CommitReplyMedium_v2(d, handler, BYTES(n), 0 ARGUMENTS_##n), 0);                        \
    }                                                                                                                  \
    check_evaluated(n);                                                                                                \
  }                                                                                                                    \
  static void long_reply_to_##n(gex_Token_t token) {                                                                   \
    char *const to = landing(source_of(token), me, 1);                                                                 \
    const gex_AM_SrcDesc_t d = filled(gex_AM_PrepareReplyLong(token, NULL, BYTES(n), 300, to, NULL, 0, n), n);         \
    const gex_AM_Index_t handler = REPLY(LONG, n);                                                                     \
    switch (forms[LONG][n]++ % 4) {                                                                                    \
      case 0: gex_AM_CommitReplyLong##n(d, handler, BYTES(n), to ARGUMENTS_##n); break;                                \
      case 1: gex_AM_CommitReplyLong(d, handler, BYTES(n), to ARGUMENTS_##n); break;                                   \
      case 2: CHECK_EQ(gex_AM_CommitReplyLong##n##_v2(d, handler, BYTES(n), to, 0 ARGUMENTS_##n), 0); break;           \
      default: CHECK_EQ(gex_AM_CommitReplyLong_v2(d, handler, BYTES(n), to, 0 ARGUMENTS_##n), 0);                      \
    }                                                                                                                  \
    check_evaluated(n);                                                                                                \
  }                                                                                                                    \
  static void medium_request_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                           \
    CHECK_WORDS_##n requested[MEDIUM][n]++;                                                                            \
    check_payload(at, bytes, n);                                                                                       \
    in_handler = 1;                                                                                                    \
    medium_reply_to_##n(token);                                                                                        \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void long_request_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                             \
    CHECK_WORDS_##n requested[LONG][n]++;                                                                              \
    CHECK(at == landing(me, source_of(token), 0));                                                                     \
    check_payload(at, bytes, n);                                                                                       \
    in_handler = 1;                                                                                                    \
    long_reply_to_##n(token);                                                                                          \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void medium_reply_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                             \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[MEDIUM][n]++;                                                                             \
    check_payload(at, bytes, n);                                                                                       \
  }                                                                                                                    \
  static void long_reply_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                               \
    CHECK_WORDS_##n answered[LONG][n]++;                                                                               \
    CHECK(at == landing(me, source_of(token), 1));                                                                     \
    check_payload(at, bytes, n);                                                                                       \
  }

EACH_COUNT(HANDLERS)

#define ENTRIES(n)                                                                                                     \
  {REQUEST(MEDIUM, n), (gex_AM_Fn_t)medium_request_##n, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, n, NULL, NULL},      \
    {REQUEST(LONG, n), (gex_AM_Fn_t)long_request_##n, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, n, NULL, NULL},          \
    {REPLY(MEDIUM, n), (gex_AM_Fn_t)medium_reply_##n, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, n, NULL, NULL},          \
    {REPLY(LONG, n), (gex_AM_Fn_t)long_reply_##n, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, n, NULL, NULL},

static gex_AM_Entry_t handlers[] = {EACH_COUNT(ENTRIES)};

/* Sends each form of each request to this peer. Each one waits for its reply before the next one is
 * sent. */
static void talk_to(gex_Rank_t peer) {
  char *const to = landing(peer, me, 0);
  gex_AM_SrcDesc_t d;
#define MEDIUM_OF(n) filled(gex_AM_PrepareRequestMedium(team, peer, NULL, BYTES(n), 300, NULL, 0, n), n)
#define LONG_OF(n) filled(gex_AM_PrepareRequestLong(team, peer, NULL, BYTES(n), 300, to, NULL, 0, n), n)
#define AWAIT(kind, n)                                                                                                 \
  check_evaluated(n);                                                                                                  \
  GASNET_BLOCKUNTIL(answered[kind][n] == answers + 1);                                                                 \
  answers = answered[kind][n];

#define TALK(n)                                                                                                        \
  {                                                                                                                    \
    const gex_AM_Index_t medium = REQUEST(MEDIUM, n), to_segment = REQUEST(LONG, n);                                   \
    int answers = answered[MEDIUM][n];                                                                                 \
    d = MEDIUM_OF(n);                                                                                                  \
    gex_AM_CommitRequestMedium##n(d, medium, BYTES(n) ARGUMENTS_##n);                                                  \
    AWAIT(MEDIUM, n)                                                                                                   \
    d = MEDIUM_OF(n);                                                                                                  \
    gex_AM_CommitRequestMedium(d, medium, BYTES(n) ARGUMENTS_##n);                                                     \
    AWAIT(MEDIUM, n)                                                                                                   \
    d = MEDIUM_OF(n);                                                                                                  \
    CHECK_EQ(gex_AM_CommitRequestMedium##n##_v2(d, medium, BYTES(n), 0 ARGUMENTS_##n), 0);                             \
    AWAIT(MEDIUM, n)                                                                                                   \
    d = MEDIUM_OF(n);                                                                                                  \
    CHECK_EQ(gex_AM_CommitRequestMedium_v2(d, medium, BYTES(n), 0 ARGUMENTS_##n), 0);                                  \
    AWAIT(MEDIUM, n)                                                                                                   \
    answers = answered[LONG][n];                                                                                       \
    d = LONG_OF(n);                                                                                                    \
    gex_AM_CommitRequestLong##n(d, to_segment, BYTES(n), to ARGUMENTS_##n);                                            \
    AWAIT(LONG, n)                                                                                                     \
    d = LONG_OF(n);                                                                                                    \
    gex_AM_CommitRequestLong(d, to_segment, BYTES(n), to ARGUMENTS_##n);                                               \
    AWAIT(LONG, n)                                                                                                     \
    d = LONG_OF(n);                                                                                                    \
    CHECK_EQ(gex_AM_CommitRequestLong##n##_v2(d, to_segment, BYTES(n), to, 0 ARGUMENTS_##n), 0);                       \
    AWAIT(LONG, n)                                                                                                     \
    d = LONG_OF(n);                                                                                                    \
    CHECK_EQ(gex_AM_CommitRequestLong_v2(d, to_segment, BYTES(n), to, 0 ARGUMENTS_##n), 0);                            \
    AWAIT(LONG, n)                                                                                                     \
  }

  EACH_COUNT(TALK)
}

int main(int argc, char **argv) {
  int kind, n;
  start(&argc, &argv, handlers, sizeof(handlers) / sizeof(handlers[0]), (uintptr_t)16 * GASNET_PAGESIZE);
  CHECK(2 * 256 * size <= 16 * GASNET_PAGESIZE);
  talk_to(neighbour(1));
  talk_to(me);
  barrier();
  for (kind = 0; kind < KINDS; ++kind)
    for (n = 0; n < COUNTS; ++n) {
      CHECK_EQ(requested[kind][n], 8);
      CHECK_EQ(answered[kind][n], 8);
    }
  finish();
  return 0;
}
