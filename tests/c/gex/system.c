/* The job and its hosts, the environment, waiting, and verbose errors. */
#include "start.h"

enum { TELL = GEX_AM_INDEX_BASE };
static volatile int told;

static void tell(gex_Token_t token) {
  (void)token;
  /* Handlers may make all of these calls. */
  CHECK_EQ(gex_System_QueryJobRank(), me);
  CHECK_EQ(gex_System_QueryJobSize(), size);
  CHECK_EQ(gex_TM_QueryRank(team), me);
  CHECK(gex_AM_MaxArgs() >= 16);
  told++;
}

/* Checks that a list has ranks in ascending order and this rank at index `mine`. */
static void check_list(const gex_RankInfo_t *list, gex_Rank_t count, gex_Rank_t mine) {
  gex_Rank_t i;
  CHECK(list != NULL && count >= 1 && count <= size && mine < count);
  CHECK_EQ(list[mine].gex_jobrank, me);
  for (i = 1; i < count; ++i) CHECK(list[i - 1].gex_jobrank < list[i].gex_jobrank);
  CHECK(list[count - 1].gex_jobrank < size);
}

static void hosts(int mapped) {
  gex_RankInfo_t *near, *host;
  gex_Rank_t near_count, near_mine, host_count, host_mine, sets, set, host_sets, host_set;
  gex_System_QueryNbrhdInfo(&near, &near_count, &near_mine);
  gex_System_QueryHostInfo(&host, &host_count, &host_mine);
  gex_System_QueryMyPosition(&sets, &set, &host_sets, &host_set);
  check_list(near, near_count, near_mine);
  check_list(host, host_count, host_mine);
  CHECK(near_count <= host_count);
  CHECK(set < sets && host_set < host_sets && host_sets <= sets);
  /* All ranks of these tests share a host. They also share memory, unless that is switched off. */
  CHECK_EQ(host_count, size);
  CHECK_EQ(near_count, mapped ? size : 1);
  CHECK_EQ(sets, mapped ? 1 : size);
  CHECK_EQ(set, mapped ? 0 : me);
  gex_System_QueryNbrhdInfo(NULL, NULL, NULL);
  gex_System_QueryHostInfo(NULL, &host_count, NULL);
  gex_System_QueryMyPosition(NULL, NULL, NULL, NULL);
  CHECK_EQ(host_count, size);
}

static void threads(void) {
  CHECK_EQ(gex_System_QueryHiddenAMConcurrencyLevel(), GASNET_HIDDEN_AM_CONCURRENCY_LEVEL);
#if defined(GASNET_SEQ)
  CHECK_EQ(gex_System_QueryMaxThreads(), 1);
#else
  CHECK(gex_System_QueryMaxThreads() > 1);
#endif
}

static void environment(void) {
  CHECK(gasnet_getenv("CONDUIT_TEST_NO_SUCH_VARIABLE") == NULL);
  CHECK(gasnet_getenv("TEST_TEXT") != NULL);
  CHECK(!strcmp(gasnet_getenv("TEST_TEXT"), "a value, with spaces"));
}

static void waiting(void) {
  const int modes[] = {GASNET_WAIT_SPIN, GASNET_WAIT_BLOCK, GASNET_WAIT_SPINBLOCK};
  int i;
  for (i = 0; i < 3; ++i) {
    const int before = told;
    CHECK_EQ(gasnet_set_waitmode(modes[i]), GASNET_OK);
    barrier();
    gex_AM_RequestShort0(team, neighbour(1), TELL, 0);
    GASNET_BLOCKUNTIL(told > before);
    barrier();
  }
  CHECK_EQ(told, 3);
  CHECK_EQ(gasnet_AMPoll(), GASNET_OK);
}

static void verbose_errors(void) {
  CHECK(gex_System_GetVerboseErrors());
  gex_System_SetVerboseErrors(0);
  CHECK(!gex_System_GetVerboseErrors());
  gex_System_SetVerboseErrors(1);
  CHECK(gex_System_GetVerboseErrors());
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {{TELL, (gex_AM_Fn_t)tell, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "tell"}};
  const char *windows;
  start(&argc, &argv, handlers, 1, GASNET_PAGESIZE);
  windows = gasnet_getenv("CONDUIT_WINDOWS");
  hosts(!windows || strcmp(windows, "0"));
  threads();
  environment();
  waiting();
  verbose_errors();
  finish();
  return 0;
}
