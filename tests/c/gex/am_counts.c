/* Sends active messages of fixed payload with every count of arguments, as requests and as replies.
 * Both the functions with the count in their names and the macros that count their arguments are
 * used. */
#include "start.h"

#include "args.h"

enum { SHORT, MEDIUM, LONG, KINDS };
#define REQUEST(kind, n) ((gex_AM_Index_t)(GEX_AM_INDEX_BASE + (kind)*COUNTS + (n)))
#define REPLY(kind, n) ((gex_AM_Index_t)(GEX_AM_INDEX_BASE + (KINDS + (kind)) * COUNTS + (n)))

/* The number of payload bytes of a message with n arguments.
 * */
#define BYTES(n) ((size_t)(n)*13)
/* The offset of a long with n arguments in the segment: first for requests, then for replies. */
#define PLACE(n) ((n)*256)
#define REPLY_PLACE(n) (COUNTS * 256 + PLACE(n))

static int requested[KINDS][COUNTS], answered[KINDS][COUNTS];
/* Which form the next reply has: functions and macros alternate. */
static int form;
static char buffer[BYTES(COUNTS)];

static gex_Rank_t source_of(gex_Token_t token) {
  gex_Token_Info_t info;
  CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK) & GEX_TI_SRCRANK);
  return info.gex_srcrank;
}

static void check_payload(const void *at, size_t bytes, unsigned int n) {
  CHECK_EQ(bytes, BYTES(n));
  check_filled(at, bytes, n);
}

#define HANDLERS(n)                                                                                                    \
  static void short_request_##n(gex_Token_t token PARAMETERS_##n) {                                                    \
    in_handler = 1;                                                                                                    \
    CHECK_WORDS_##n requested[SHORT][n]++;                                                                             \
    if (form++ % 2) CHECK_EQ(gex_AM_ReplyShort##n(token, REPLY(SHORT, n), 0 ARGUMENTS_##n), 0);                        \
    else CHECK_EQ(gex_AM_ReplyShort(token, REPLY(SHORT, n), 0 ARGUMENTS_##n), 0);                                      \
    check_evaluated(n);                                                                                                \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void medium_request_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                           \
    in_handler = 1;                                                                                                    \
    CHECK_WORDS_##n requested[MEDIUM][n]++;                                                                            \
    check_payload(at, bytes, n);                                                                                       \
    if (form++ % 2)                                                                                                    \
      CHECK_EQ(gex_AM_ReplyMedium##n(token, REPLY(MEDIUM, n), at, bytes, GEX_EVENT_NOW, 0 ARGUMENTS_##n), 0);          \
    else CHECK_EQ(gex_AM_ReplyMedium(token, REPLY(MEDIUM, n), at, bytes, GEX_EVENT_NOW, 0 ARGUMENTS_##n), 0);          \
    check_evaluated(n);                                                                                                \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void long_request_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                             \
    in_handler = 1;                                                                                                    \
    char *const there = base[source_of(token)] + REPLY_PLACE(n);                                                       \
    CHECK_WORDS_##n requested[LONG][n]++;                                                                              \
    CHECK(at == base[me] + PLACE(n));                                                                                  \
    check_payload(at, bytes, n);                                                                                       \
    if (form++ % 2)                                                                                                    \
      CHECK_EQ(gex_AM_ReplyLong##n(token, REPLY(LONG, n), at, bytes, there, GEX_EVENT_NOW, 0 ARGUMENTS_##n), 0);       \
    else CHECK_EQ(gex_AM_ReplyLong(token, REPLY(LONG, n), at, bytes, there, GEX_EVENT_NOW, 0 ARGUMENTS_##n), 0);       \
    check_evaluated(n);                                                                                                \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void short_reply_##n(gex_Token_t token PARAMETERS_##n) {                                                      \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[SHORT][n]++;                                                                              \
  }                                                                                                                    \
  static void medium_reply_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                             \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[MEDIUM][n]++;                                                                             \
    check_payload(at, bytes, n);                                                                                       \
  }                                                                                                                    \
  static void long_reply_##n(gex_Token_t token, void *at, size_t bytes PARAMETERS_##n) {                               \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[LONG][n]++;                                                                               \
    CHECK(at == base[me] + REPLY_PLACE(n));                                                                            \
    check_payload(at, bytes, n);                                                                                       \
  }

EACH_COUNT(HANDLERS)

#define ENTRIES(n)                                                                                                     \
  {REQUEST(SHORT, n), (gex_AM_Fn_t)short_request_##n, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, n, NULL, "short"},      \
    {REQUEST(MEDIUM, n), (gex_AM_Fn_t)medium_request_##n, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, n, NULL, "medium"},\
    {REQUEST(LONG, n), (gex_AM_Fn_t)long_request_##n, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, n, NULL, "long"},        \
    {REPLY(SHORT, n), (gex_AM_Fn_t)short_reply_##n, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, n, NULL, "short reply"},    \
    {REPLY(MEDIUM, n), (gex_AM_Fn_t)medium_reply_##n, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, n, NULL, "medium reply"},\
    {REPLY(LONG, n), (gex_AM_Fn_t)long_reply_##n, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, n, NULL, "long reply"},

static gex_AM_Entry_t handlers[] = {EACH_COUNT(ENTRIES)};

static void await(int kind, int n, int answers) { GASNET_BLOCKUNTIL(answered[kind][n] >= answers); }

/* Sends both forms of each request to this peer. Each request gets a reply. */
static void talk_to(gex_Rank_t peer, int before) {
#define TALK(n)                                                                                                        \
  CHECK_EQ(gex_AM_RequestShort##n(team, peer, REQUEST(SHORT, n), 0 ARGUMENTS_##n), 0);                                 \
  check_evaluated(n);                                                                                                  \
  await(SHORT, n, before + 1);                                                                                         \
  CHECK_EQ(gex_AM_RequestShort(team, peer, REQUEST(SHORT, n), 0 ARGUMENTS_##n), 0);                                    \
  check_evaluated(n);                                                                                                  \
  fill(buffer, BYTES(n), n);                                                                                           \
  CHECK_EQ(gex_AM_RequestMedium##n(team, peer, REQUEST(MEDIUM, n), buffer, BYTES(n), GEX_EVENT_NOW, 0 ARGUMENTS_##n),  \
           0);                                                                                                         \
  check_evaluated(n);                                                                                                  \
  CHECK_EQ(gex_AM_RequestMedium(team, peer, REQUEST(MEDIUM, n), buffer, BYTES(n), GEX_EVENT_NOW, 0 ARGUMENTS_##n), 0); \
  check_evaluated(n);                                                                                                  \
  CHECK_EQ(gex_AM_RequestLong##n(team, peer, REQUEST(LONG, n), buffer, BYTES(n), base[peer] + PLACE(n), GEX_EVENT_NOW, \
                                 0 ARGUMENTS_##n),                                                                     \
           0);                                                                                                         \
  check_evaluated(n);                                                                                                  \
  await(LONG, n, before + 1);                                                                                          \
  CHECK_EQ(gex_AM_RequestLong(team, peer, REQUEST(LONG, n), buffer, BYTES(n), base[peer] + PLACE(n), GEX_EVENT_NOW,    \
                              0 ARGUMENTS_##n),                                                                        \
           0);                                                                                                         \
  check_evaluated(n);                                                                                                  \
  await(SHORT, n, before + 2);                                                                                         \
  await(MEDIUM, n, before + 2);                                                                                        \
  await(LONG, n, before + 2);
  EACH_COUNT(TALK)
}

int main(int argc, char **argv) {
  int kind, n;
  start(&argc, &argv, handlers, sizeof(handlers) / sizeof(handlers[0]), (uintptr_t)16 * GASNET_PAGESIZE);
  CHECK_EQ(gex_AM_MaxArgs(), MOST_ARGS);
  talk_to(neighbour(1), 0);
  talk_to(me, 2);
  barrier();
  for (kind = 0; kind < KINDS; ++kind)
    for (n = 0; n < COUNTS; ++n) {
      CHECK_EQ(requested[kind][n], 4);
      CHECK_EQ(answered[kind][n], 4);
    }
  finish();
  return 0;
}
