/* Negotiated payload: granted sizes, buffers of the client and of the library, committing less than
 * was prepared, cancelling, and the immediate flag. prepared_counts.c tests all counts of
 * arguments. */
#include "start.h"

enum { MEDIUM = GEX_AM_INDEX_BASE, LONG, EXCHANGE, BACK_MEDIUM, BACK_LONG, IN_PLACE, PLACED, PLACED_BACK, REPLY_OF,
       REPLIED, HANDLERS };

#define SEGMENT ((uintptr_t)1 << 20)

static volatile unsigned int received, answered;
/* The number of messages that this rank must have received so far. Peers may be ahead and have sent
 * more. */
static unsigned int expected;
static size_t last_bytes;

static void medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  check_filled(at, bytes, (unsigned int)message);
  last_bytes = bytes;
  received++;
}

static void to_segment(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  if (bytes > 0) CHECK(at == base[me] + 5);
  check_filled(at, bytes, (unsigned int)message);
  last_bytes = bytes;
  received++;
}

/* Checks the size and the address that a prepare call has granted. */
static void check_granted(gex_AM_SrcDesc_t descriptor, const void *buffer, size_t least, size_t most) {
  CHECK(descriptor != GEX_AM_SRCDESC_NO_OP);
  CHECK(gex_AM_SrcDescSize(descriptor) >= least);
  CHECK(gex_AM_SrcDescSize(descriptor) <= most);
  if (buffer) CHECK(gex_AM_SrcDescAddr(descriptor) == buffer);
  else {
    CHECK(gex_AM_SrcDescAddr(descriptor) != NULL);
    CHECK_EQ((uintptr_t)gex_AM_SrcDescAddr(descriptor) % 8, 0);
  }
}

/* The local completion of the last reply. The replier tests it later, because a handler may not do
 * so. */
static gex_Event_t reply_local;

/* Replies in a request's handler with negotiated payload. `kind` selects the kind of reply. Both
 * the least and the most size are large. */
static void exchange(gex_Token_t token, gex_AM_Arg_t kind) {
  static char own[1000];
  gex_Token_Info_t info;
  gex_AM_SrcDesc_t descriptor;
  const int is_long = kind & 1, library = kind & 2, cancelled = kind & 4;
  char *const buffer = library ? NULL : own;
  gex_Event_t *const option = library ? NULL : kind & 8 ? GEX_EVENT_NOW : &reply_local;
  char *there;
  int attempt;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  there = base[info.gex_srcrank] + 7;
  for (attempt = 0;; ++attempt) {
    if (is_long) descriptor = gex_AM_PrepareReplyLong(token, buffer, 100, 1000, there, option, 0, 1);
    else descriptor = gex_AM_PrepareReplyMedium(token, buffer, 100, 1000, option, 0, 1);
    check_granted(descriptor, buffer, 100, 1000);
    if (!cancelled || attempt > 0) break;
    if (is_long) CHECK_EQ(gex_AM_CancelReplyLong(descriptor, 0), 0);
    else CHECK_EQ(gex_AM_CancelReplyMedium(descriptor, 0), 0);
  }
  fill(gex_AM_SrcDescAddr(descriptor), 90, (unsigned int)kind);
  if (is_long) gex_AM_CommitReplyLong1(descriptor, BACK_LONG, 90, there, kind);
  else gex_AM_CommitReplyMedium1(descriptor, BACK_MEDIUM, 90, kind);
}

static void back_medium(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t kind) {
  (void)token;
  CHECK_EQ(bytes, 90);
  check_filled(at, bytes, (unsigned int)kind);
  answered++;
}

static void back_long(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t kind) {
  (void)token;
  CHECK_EQ(bytes, 90);
  CHECK(at == base[me] + 7);
  check_filled(at, bytes, (unsigned int)kind);
  answered++;
}

/* Sends one message. It is prepared for `least` to `most` bytes in `buffer`, or in the library's
 * buffer if `buffer` is null. Of these, `bytes` bytes are sent, or all that were granted if `bytes`
 * is SIZE_MAX. */
static void send(int is_long, gex_Rank_t peer, void *buffer, size_t least, size_t most, size_t bytes,
                 gex_Event_t *option) {
  static unsigned int message;
  gex_AM_SrcDesc_t descriptor;
  char *const there = base[peer] + 5;
  if (is_long) descriptor = gex_AM_PrepareRequestLong(team, peer, buffer, least, most, there, option, 0, 1);
  else descriptor = gex_AM_PrepareRequestMedium(team, peer, buffer, least, most, option, 0, 1);
  check_granted(descriptor, buffer, least, most);
  if (bytes == SIZE_MAX) bytes = gex_AM_SrcDescSize(descriptor);
  fill(gex_AM_SrcDescAddr(descriptor), bytes, ++message);
  if (is_long) gex_AM_CommitRequestLong1(descriptor, LONG, bytes, there, (gex_AM_Arg_t)message);
  else gex_AM_CommitRequestMedium1(descriptor, MEDIUM, bytes, (gex_AM_Arg_t)message);
  if (buffer) {
    if (option == GEX_EVENT_GROUP) gex_NBI_Wait(GEX_EC_AM, 0);
    else if (option != GEX_EVENT_NOW) gex_Event_Wait(*option);
    memset(buffer, 0, bytes);
  }
  /* All ranks send the same messages, so this rank must also receive one. */
  expected++;
  GASNET_BLOCKUNTIL(received == expected);
  CHECK_EQ(last_bytes, bytes);
  barrier();
}

static void requests(gex_Rank_t peer) {
  static char buffer[SEGMENT / 2];
  gex_Event_t local = GEX_EVENT_NO_OP;
  gex_Event_t *const options[] = {GEX_EVENT_NOW, GEX_EVENT_GROUP, &local};
  int is_long, i;
  for (is_long = 0; is_long < 2; ++is_long) {
    /* These flags select the limits that apply to prepare calls. */
    const gex_Flags_t client_flag = GEX_FLAG_AM_PREPARE_LEAST_CLIENT, alloc_flag = GEX_FLAG_AM_PREPARE_LEAST_ALLOC;
    size_t client_most = is_long ? gex_AM_MaxRequestLong(team, peer, GEX_EVENT_NOW, client_flag, 1)
                                 : gex_AM_MaxRequestMedium(team, peer, GEX_EVENT_NOW, client_flag, 1);
    const size_t alloc_most = is_long ? gex_AM_MaxRequestLong(team, peer, NULL, alloc_flag, 1)
                                      : gex_AM_MaxRequestMedium(team, peer, NULL, alloc_flag, 1);
    if (client_most > sizeof(buffer)) client_most = sizeof(buffer);
    for (i = 0; i < 3; ++i) {
      send(is_long, peer, buffer, 0, 0, 0, options[i]);
      send(is_long, peer, buffer, 0, 100, 0, options[i]);
      send(is_long, peer, buffer, 100, 100, 100, options[i]);
      send(is_long, peer, buffer + 3, 10, 1000, 7, options[i]);
      send(is_long, peer, buffer, client_most, client_most, client_most, options[i]);
      send(is_long, peer, buffer, 1, sizeof(buffer), SIZE_MAX, options[i]);
    }
    send(is_long, peer, NULL, 0, 0, 0, NULL);
    send(is_long, peer, NULL, 0, 1, 1, NULL);
    send(is_long, peer, NULL, 0, 100, 0, NULL);
    send(is_long, peer, NULL, 100, 100, 99, NULL);
    send(is_long, peer, NULL, 1, SIZE_MAX / 4, 1, NULL);
    CHECK(alloc_most <= SEGMENT / 2);
    send(is_long, peer, NULL, alloc_most, alloc_most, alloc_most, NULL);
    send(is_long, peer, NULL, 1, SEGMENT / 2, SIZE_MAX, NULL);
  }
}

static void cancelled(gex_Rank_t peer) {
  static char buffer[100];
  gex_AM_SrcDesc_t descriptor;
  int i;
  /* Prepares more messages than there are buffers. This works because cancelling returns the
   * buffers. */
  for (i = 0; i < 2000; ++i) {
    descriptor = gex_AM_PrepareRequestMedium(team, peer, NULL, 1, 100, NULL, 0, 0);
    CHECK_EQ(gex_AM_CancelRequestMedium(descriptor, 0), 0);
    descriptor = gex_AM_PrepareRequestLong(team, peer, NULL, 1, 100, base[peer], NULL, 0, 0);
    CHECK_EQ(gex_AM_CancelRequestLong(descriptor, 0), 0);
  }
  descriptor = gex_AM_PrepareRequestMedium(team, peer, buffer, 1, 100, GEX_EVENT_NOW, 0, 0);
  CHECK_EQ(gex_AM_CancelRequestMedium(descriptor, 0), 0);
  descriptor = gex_AM_PrepareRequestLong(team, peer, buffer, 1, 100, base[peer], GEX_EVENT_NOW, 0, 0);
  CHECK_EQ(gex_AM_CancelRequestLong(descriptor, 0), 0);
  send(0, peer, NULL, 10, 10, 10, NULL);
}

/* Prepares and commits with the immediate flag. Each call must either succeed or report that it had
 * no effect. */
static void immediate(gex_Rank_t peer) {
  static char buffer[100];
  int i;
  for (i = 0; i < 200; ++i) {
    char *const own = i % 2 ? buffer : NULL;
    gex_Event_t *const option = own ? GEX_EVENT_NOW : NULL;
    const gex_Flags_t flag = GEX_FLAG_IMMEDIATE;
    gex_AM_SrcDesc_t descriptor;
    while (GEX_AM_SRCDESC_NO_OP ==
           (descriptor = gex_AM_PrepareRequestMedium(team, peer, own, 1, sizeof(buffer), option, flag, 1)))
      gasnet_AMPoll();
    fill(gex_AM_SrcDescAddr(descriptor), 50, (unsigned int)i);
    while (gex_AM_CommitRequestMedium1_v2(descriptor, MEDIUM, 50, flag, i)) {
      /* The descriptor is still valid here. It is cancelled, and the message is prepared again
       * after a poll. */
      CHECK(gex_AM_SrcDescSize(descriptor) >= 50);
      gex_AM_CancelRequestMedium(descriptor, 0);
      gasnet_AMPoll();
      descriptor = gex_AM_PrepareRequestMedium(team, peer, own, 1, sizeof(buffer), option, 0, 1);
      fill(gex_AM_SrcDescAddr(descriptor), 50, (unsigned int)i);
    }
  }
}

/* Returns where the destination of a long is mapped in this process, or null if it isn't mapped. */
static char *mapped(gex_Rank_t rank, const char *there) {
  void *local = NULL;
  CHECK_EQ(gex_Segment_QueryBound(team, rank, NULL, &local, NULL), 0);
  return local ? (char *)local + (there - base[rank]) : NULL;
}

/* Replies in a request's handler with longs that are written in place at their destination. `bytes`
 * is their length. */
static void in_place(gex_Token_t token, gex_AM_Arg_t bytes) {
  gex_Token_Info_t info;
  gex_AM_SrcDesc_t descriptor;
  char *there;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  there = base[info.gex_srcrank] + 4096;
  descriptor = gex_AM_PrepareReplyLong(token, NULL, (size_t)bytes, SEGMENT, there, NULL, 0, 1);
  check_granted(descriptor, NULL, (size_t)bytes, SEGMENT);
  if (mapped(info.gex_srcrank, there)) CHECK(gex_AM_SrcDescAddr(descriptor) == mapped(info.gex_srcrank, there));
  fill(gex_AM_SrcDescAddr(descriptor), (size_t)bytes, (unsigned int)bytes);
  gex_AM_CommitReplyLong1(descriptor, PLACED_BACK, (size_t)bytes, there, bytes);
}

static void placed(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  CHECK(at == base[me] + 8192 || at == base[me] + SEGMENT - 64);
  check_filled(at, bytes, (unsigned int)message);
  last_bytes = bytes;
  received++;
}

static void placed_back(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t message) {
  (void)token;
  CHECK_EQ(bytes, message);
  CHECK(at == base[me] + 4096);
  check_filled(at, bytes, (unsigned int)message);
  answered++;
}

/* Sends a long of `bytes` bytes, prepared for up to `most` bytes. It is written in place if its
 * destination is mapped. */
static void place(gex_Rank_t peer, char *there, size_t most, size_t bytes) {
  static unsigned int message = 500;
  const size_t room = (size_t)(base[peer] + SEGMENT - there);
  /* The destination may have room for more bytes than the library's buffers do. */
  const size_t least = bytes > 1000 ? 1000 : bytes;
  gex_AM_SrcDesc_t descriptor = gex_AM_PrepareRequestLong(team, peer, NULL, least, most, there, NULL, 0, 1);
  check_granted(descriptor, NULL, least, most);
  if (mapped(peer, there)) {
    CHECK(gex_AM_SrcDescAddr(descriptor) == mapped(peer, there));
    CHECK_EQ(gex_AM_SrcDescSize(descriptor), most < room ? most : room);
  }
  fill(gex_AM_SrcDescAddr(descriptor), bytes, ++message);
  gex_AM_CommitRequestLong1(descriptor, PLACED, bytes, there, (gex_AM_Arg_t)message);
  expected++;
  GASNET_BLOCKUNTIL(received == expected);
  CHECK_EQ(last_bytes, bytes);
  barrier();
}

static void places(gex_Rank_t peer) {
  int bytes;
  unsigned int before;
  place(peer, base[peer] + 8192, 1, 1);
  place(peer, base[peer] + 8192, 1000, 999);
  place(peer, base[peer] + 8192, SIZE_MAX / 2, 1000);
  place(peer, base[peer] + SEGMENT - 64, 1000, 64);
  place(peer, base[peer] + SEGMENT - 64, 64, 0);
  if (mapped(peer, base[peer])) place(peer, base[peer] + 8192, SEGMENT / 2, SEGMENT / 2);
  for (bytes = 1; bytes < 5000; bytes = bytes * 3 + 1) {
    before = answered;
    gex_AM_RequestShort1(team, peer, IN_PLACE, 0, bytes);
    GASNET_BLOCKUNTIL(answered != before);
  }
  barrier();
}

/* Sends a reply of this length from the chunk in which its payload was written. */
static void reply_of(gex_Token_t token, gex_AM_Arg_t bytes) {
  gex_AM_SrcDesc_t descriptor = gex_AM_PrepareReplyMedium(token, NULL, (size_t)bytes, (size_t)bytes, NULL, 0, 3);
  check_granted(descriptor, NULL, (size_t)bytes, (size_t)bytes);
  fill(gex_AM_SrcDescAddr(descriptor), (size_t)bytes, (unsigned int)bytes);
  gex_AM_CommitReplyMedium3(descriptor, REPLIED, (size_t)bytes, 1, bytes, 3);
}

static void replied(gex_Token_t token, void *at, size_t bytes, gex_AM_Arg_t one, gex_AM_Arg_t message, gex_AM_Arg_t three) {
  (void)token;
  CHECK(one == 1 && three == 3);
  CHECK_EQ(bytes, message);
  check_filled(at, bytes, (unsigned int)message);
  answered++;
}

static void sizes_of_replies(gex_Rank_t peer) {
  const size_t most = gex_AM_MaxReplyMedium(team, peer, NULL, GEX_FLAG_AM_PREPARE_LEAST_ALLOC, 3);
  size_t bytes;
  unsigned int before;
  for (bytes = 1; bytes <= most; bytes = bytes == most ? most + 1 : bytes * 2 > most ? most : bytes * 2) {
    before = answered;
    gex_AM_RequestShort1(team, peer, REPLY_OF, 0, (gex_AM_Arg_t)bytes);
    GASNET_BLOCKUNTIL(answered != before);
  }
  barrier();
}

static void replies(gex_Rank_t peer) {
  int kind;
  for (kind = 0; kind < 16; ++kind) {
    gex_AM_RequestShort1(team, peer, EXCHANGE, 0, kind);
    GASNET_BLOCKUNTIL(answered % 16 == (unsigned int)(kind + 1) % 16);
    barrier();
    gex_Event_Wait(reply_local);
    reply_local = GEX_EVENT_INVALID;
    barrier();
  }
}

int main(int argc, char **argv) {
  const gex_Flags_t request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t handlers[] = {{MEDIUM, (gex_AM_Fn_t)medium, GEX_FLAG_AM_MEDIUM | request, 1, NULL, "medium"},
                               {LONG, (gex_AM_Fn_t)to_segment, GEX_FLAG_AM_LONG | request, 1, NULL, "long"},
                               {EXCHANGE, (gex_AM_Fn_t)exchange, GEX_FLAG_AM_SHORT | request, 1, NULL, "exchange"},
                               {BACK_MEDIUM, (gex_AM_Fn_t)back_medium, GEX_FLAG_AM_MEDIUM | reply, 1, NULL, "medium"},
                               {BACK_LONG, (gex_AM_Fn_t)back_long, GEX_FLAG_AM_LONG | reply, 1, NULL, "long"},
                               {IN_PLACE, (gex_AM_Fn_t)in_place, GEX_FLAG_AM_SHORT | request, 1, NULL, "in place"},
                               {PLACED, (gex_AM_Fn_t)placed, GEX_FLAG_AM_LONG | request, 1, NULL, "placed"},
                               {PLACED_BACK, (gex_AM_Fn_t)placed_back, GEX_FLAG_AM_LONG | reply, 1, NULL, "back"},
                               {REPLY_OF, (gex_AM_Fn_t)reply_of, GEX_FLAG_AM_SHORT | request, 1, NULL, "reply of"},
                               {REPLIED, (gex_AM_Fn_t)replied, GEX_FLAG_AM_MEDIUM | reply, 3, NULL, "replied"}};
  start(&argc, &argv, handlers, HANDLERS - GEX_AM_INDEX_BASE, SEGMENT);
  requests(neighbour(1));
  requests(me);
  cancelled(neighbour(1));
  immediate(neighbour(1));
  expected += 200;
  GASNET_BLOCKUNTIL(received == expected);
  barrier();
  places(neighbour(1));
  places(me);
  sizes_of_replies(neighbour(1));
  sizes_of_replies(me);
  answered = 0;
  barrier();
  replies(neighbour(1));
  replies(me);
  finish();
  return 0;
}
