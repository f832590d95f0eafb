/* GASNet-1's active messages with every count of arguments, as requests and as replies. Both the
 * functions with the count in their names and the functions with the count as an argument are used.
 * Also sends longs whose source stays in use. */
#include "legacy_start.h"

#include "args.h"

enum { SHORT, MEDIUM, LONG, KINDS };
#define REQUEST(kind, n) ((gasnet_handler_t)(128 + (kind)*COUNTS + (n)))
#define REPLY(kind, n) ((gasnet_handler_t)(128 + (KINDS + (kind)) * COUNTS + (n)))
#define BYTES(n) ((size_t)(n)*9)
#define PLACE(n) ((size_t)(n)*256)
#define REPLY_PLACE(n) (COUNTS * 256 + PLACE(n))

static int requested[KINDS][COUNTS], answered[KINDS][COUNTS];
static int form;
static char buffer[BYTES(COUNTS)];

static gasnet_node_t source_of(gasnet_token_t token) {
  gasnet_node_t source;
  CHECK_EQ(gasnet_AMGetMsgSource(token, &source), GASNET_OK);
  return source;
}

static void check_payload(const void *where, size_t bytes, unsigned int n) {
  CHECK_EQ(bytes, BYTES(n));
  check_filled(where, bytes, n);
}

#define HANDLERS(n)                                                                                                    \
  static void short_request_##n(gasnet_token_t token PARAMETERS_##n) {                                                 \
    CHECK_WORDS_##n requested[SHORT][n]++;                                                                             \
    in_handler = 1;                                                                                                    \
    if (form++ % 2) CHECK_EQ(gasnet_AMReplyShort##n(token, REPLY(SHORT, n) ARGUMENTS_##n), GASNET_OK);                 \
    else CHECK_EQ(gasnet_AMReplyShort(token, REPLY(SHORT, n), n ARGUMENTS_##n), GASNET_OK);                            \
    check_evaluated(n);                                                                                                \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void medium_request_##n(gasnet_token_t token, void *where, size_t bytes PARAMETERS_##n) {                     \
    CHECK_WORDS_##n requested[MEDIUM][n]++;                                                                            \
    check_payload(where, bytes, n);                                                                                    \
    in_handler = 1;                                                                                                    \
    if (form++ % 2)                                                                                                    \
      CHECK_EQ(gasnet_AMReplyMedium##n(token, REPLY(MEDIUM, n), where, bytes ARGUMENTS_##n), GASNET_OK);               \
    else CHECK_EQ(gasnet_AMReplyMedium(token, REPLY(MEDIUM, n), where, bytes, n ARGUMENTS_##n), GASNET_OK);            \
    check_evaluated(n);                                                                                                \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void long_request_##n(gasnet_token_t token, void *where, size_t bytes PARAMETERS_##n) {                       \
    char *const to = at(source_of(token), REPLY_PLACE(n));                                                             \
    CHECK_WORDS_##n requested[LONG][n]++;                                                                              \
    CHECK(where == at(me, PLACE(n)));                                                                                  \
    check_payload(where, bytes, n);                                                                                    \
    in_handler = 1;                                                                                                    \
    if (form++ % 2)                                                                                                    \
      CHECK_EQ(gasnet_AMReplyLong##n(token, REPLY(LONG, n), where, bytes, to ARGUMENTS_##n), GASNET_OK);               \
    else CHECK_EQ(gasnet_AMReplyLong(token, REPLY(LONG, n), where, bytes, to, n ARGUMENTS_##n), GASNET_OK);            \
    check_evaluated(n);                                                                                                \
    in_handler = 0;                                                                                                    \
  }                                                                                                                    \
  static void short_reply_##n(gasnet_token_t token PARAMETERS_##n) {                                                   \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[SHORT][n]++;                                                                              \
  }                                                                                                                    \
  static void medium_reply_##n(gasnet_token_t token, void *where, size_t bytes PARAMETERS_##n) {                       \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[MEDIUM][n]++;                                                                             \
    check_payload(where, bytes, n);                                                                                    \
  }                                                                                                                    \
  static void long_reply_##n(gasnet_token_t token, void *where, size_t bytes PARAMETERS_##n) {                         \
    (void)token;                                                                                                       \
    CHECK_WORDS_##n answered[LONG][n]++;                                                                               \
    CHECK(where == at(me, REPLY_PLACE(n)));                                                                            \
    check_payload(where, bytes, n);                                                                                    \
  }

EACH_COUNT(HANDLERS)

#define ENTRIES(n)                                                                                                     \
  {REQUEST(SHORT, n), (gex_AM_Fn_t)short_request_##n}, {REQUEST(MEDIUM, n), (gex_AM_Fn_t)medium_request_##n},          \
    {REQUEST(LONG, n), (gex_AM_Fn_t)long_request_##n}, {REPLY(SHORT, n), (gex_AM_Fn_t)short_reply_##n},                \
    {REPLY(MEDIUM, n), (gex_AM_Fn_t)medium_reply_##n}, {REPLY(LONG, n), (gex_AM_Fn_t)long_reply_##n},

static gasnet_handlerentry_t handlers[] = {EACH_COUNT(ENTRIES)};

/* Sends each form of each request to this node. Each one waits for its reply before the next one is
 * sent. */
static void talk_to(gasnet_node_t node) {
#define AWAIT(kind, n)                                                                                                 \
  check_evaluated(n);                                                                                                  \
  GASNET_BLOCKUNTIL(answered[kind][n] == answers + 1);                                                                 \
  answers = answered[kind][n];

#define TALK(n)                                                                                                        \
  {                                                                                                                    \
    char *const to = at(node, PLACE(n));                                                                               \
    int answers = answered[SHORT][n];                                                                                  \
    CHECK_EQ(gasnet_AMRequestShort##n(node, REQUEST(SHORT, n) ARGUMENTS_##n), GASNET_OK);                              \
    AWAIT(SHORT, n)                                                                                                    \
    CHECK_EQ(gasnet_AMRequestShort(node, REQUEST(SHORT, n), n ARGUMENTS_##n), GASNET_OK);                              \
    AWAIT(SHORT, n)                                                                                                    \
    fill(buffer, BYTES(n), n);                                                                                         \
    answers = answered[MEDIUM][n];                                                                                     \
    CHECK_EQ(gasnet_AMRequestMedium##n(node, REQUEST(MEDIUM, n), buffer, BYTES(n) ARGUMENTS_##n), GASNET_OK);          \
    AWAIT(MEDIUM, n)                                                                                                   \
    CHECK_EQ(gasnet_AMRequestMedium(node, REQUEST(MEDIUM, n), buffer, BYTES(n), n ARGUMENTS_##n), GASNET_OK);          \
    AWAIT(MEDIUM, n)                                                                                                   \
    answers = answered[LONG][n];                                                                                       \
    CHECK_EQ(gasnet_AMRequestLong##n(node, REQUEST(LONG, n), buffer, BYTES(n), to ARGUMENTS_##n), GASNET_OK);          \
    AWAIT(LONG, n)                                                                                                     \
    CHECK_EQ(gasnet_AMRequestLong(node, REQUEST(LONG, n), buffer, BYTES(n), to, n ARGUMENTS_##n), GASNET_OK);          \
    AWAIT(LONG, n)                                                                                                     \
    CHECK_EQ(gasnet_AMRequestLongAsync##n(node, REQUEST(LONG, n), buffer, BYTES(n), to ARGUMENTS_##n), GASNET_OK);     \
    AWAIT(LONG, n)                                                                                                     \
    CHECK_EQ(gasnet_AMRequestLongAsync(node, REQUEST(LONG, n), buffer, BYTES(n), to, n ARGUMENTS_##n), GASNET_OK);     \
    AWAIT(LONG, n)                                                                                                     \
  }

  EACH_COUNT(TALK)
}

/* Sends a large long whose source is in use until the reply arrives. */
static void large(gasnet_node_t node) {
  const size_t bytes = (size_t)1 << 18;
  char *const source = (char *)malloc(bytes);
  const int answers = answered[LONG][0];
  CHECK(source != NULL);
  memset(source, 7, bytes);
  CHECK_EQ(gasnet_AMRequestLongAsync0(node, 250, source, bytes, at(node, 0)), GASNET_OK);
  GASNET_BLOCKUNTIL(answered[LONG][0] == answers + 1);
  free(source);
}

static void landed(gasnet_token_t token, void *where, size_t bytes) {
  size_t i;
  CHECK(where == at(me, 0));
  for (i = 0; i < bytes; ++i) CHECK(((char *)where)[i] == 7);
  CHECK_EQ(gasnet_AMReplyShort0(token, 251), GASNET_OK);
}

static void has_landed(gasnet_token_t token) {
  (void)token;
  answered[LONG][0]++;
}

int main(int argc, char **argv) {
  enum { COUNT = sizeof(handlers) / sizeof(handlers[0]) };
  gasnet_handlerentry_t table[COUNT + 2];
  int kind, n;
  memcpy(table, handlers, sizeof(handlers));
  table[COUNT].index = 250;
  table[COUNT].fnptr = (gex_AM_Fn_t)landed;
  table[COUNT + 1].index = 251;
  table[COUNT + 1].fnptr = (gex_AM_Fn_t)has_landed;
  start(&argc, &argv, table, COUNT + 2, (uintptr_t)1 << 18);
  talk_to(neighbour(1));
  barrier();
  talk_to(me);
  barrier();
  for (kind = 0; kind < KINDS; ++kind)
    for (n = 0; n < COUNTS; ++n) {
      CHECK_EQ(requested[kind][n], kind == LONG ? 8 : 4);
      CHECK_EQ(answered[kind][n], kind == LONG ? 8 : 4);
    }
  barrier();
  large(neighbour(1));
  barrier();
  large(me);
  finish();
  return 0;
}
