/* A client that asks to start the library's threads itself. The library has no such threads, and
 * communication must work without them. */
#include "start.h"

enum { PING = GEX_AM_INDEX_BASE, PONG };
static volatile int pongs;
static int pings;

static void ping(gex_Token_t token) {
  pings++;
  gex_AM_ReplyShort0(token, PONG, 0);
}

static void pong(gex_Token_t token) {
  (void)token;
  pongs++;
}

static void communicate(void) {
  const int before = pongs;
  const gex_Rank_t right = neighbour(1);
  uint64_t word = 1000 + me;
  gex_AM_RequestShort0(team, right, PING, 0);
  GASNET_BLOCKUNTIL(pongs > before);
  gex_RMA_PutBlocking(team, right, base[right], &word, sizeof(word), 0);
  CHECK_EQ(gex_RMA_GetBlockingVal(team, right, base[right], sizeof(word), 0), word);
}

static void *run(void *argument) { return argument; }

/* Checks the information that a client reads before it starts threads. */
static void check_threads(const gex_ProgressThreadInfo_t *info, unsigned int count) {
  unsigned int i;
  for (i = 0; i < count; ++i) {
    CHECK(info[i].gex_device_list != NULL && info[i].gex_progress_fn != NULL);
    CHECK(info[i].gex_thread_roles & (GEX_THREAD_ROLE_RCV | GEX_THREAD_ROLE_SND));
    CHECK(info[i].gex_progress_fn(info[i].gex_progress_arg) == info[i].gex_progress_arg);
  }
}

static void query(void) {
  const gex_ProgressThreadInfo_t example = {"lo", GEX_THREAD_ROLE_RCV, run, &pings};
  unsigned int count = 77;
  const gex_ProgressThreadInfo_t *info = NULL;
  gex_System_SetVerboseErrors(0);
  CHECK_EQ(gex_System_QueryProgressThreads(client, NULL, &info, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_System_QueryProgressThreads(client, &count, NULL, 0), GASNET_ERR_BAD_ARG);
  CHECK_EQ(gex_System_QueryProgressThreads(client, &count, &info, 1), GASNET_ERR_BAD_ARG);
  gex_System_SetVerboseErrors(1);
  CHECK_EQ(gex_System_QueryProgressThreads(client, &count, &info, 0), GASNET_OK);
  CHECK_EQ(count, 0);
  check_threads(info, count);
  check_threads(&example, 1);
  CHECK(GEX_THREAD_ROLE_RCV != 0 && GEX_THREAD_ROLE_SND != 0);
  CHECK_EQ(GEX_THREAD_ROLE_RCV & GEX_THREAD_ROLE_SND, 0);
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {{PING, (gex_AM_Fn_t)ping, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "ping"},
                               {PONG, (gex_AM_Fn_t)pong, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "pong"}};
  start_with(&argc, &argv, handlers, 2, GASNET_PAGESIZE, GEX_FLAG_DEFER_THREADS);
  CHECK_EQ(gex_Client_QueryFlags(client), GEX_FLAG_DEFER_THREADS);
  communicate();
  query();
  communicate();
  finish();
  return 0;
}
