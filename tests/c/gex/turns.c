/* Threads of a rank that take turns, as in PARSYNC. Only one of them at a time is in the library.
 * Each must keep its own events, implicit operations and access regions, whatever the other threads
 * do in between. In SEQ there is only one thread. */
#include "start.h"

#if !defined(GASNET_SEQ)
  #include <pthread.h>
  #define THREADS 4
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
#else
  #define THREADS 1
#endif

enum { COUNT = GEX_AM_INDEX_BASE, COUNTED };
#define ROUNDS 100
#define BYTES ((size_t)3000)
#define SEGMENT ((uintptr_t)1 << 17)

static int turn;
/* Only one thread at a time runs handlers, so these need no lock. */
static volatile int counted, answers;

static void count_it(gex_Token_t token, gex_AM_Arg_t number) {
  counted += (int)number;
  gex_AM_ReplyShort0(token, COUNTED, 0);
}

static void is_counted(gex_Token_t token) {
  (void)token;
  answers++;
}

#if !defined(GASNET_SEQ)
/* Waits for this thread's turn. Every other thread has a turn between two of them. */
static void begin(int thread) {
  CHECK_EQ(pthread_mutex_lock(&mutex), 0);
  while (turn % THREADS != thread) CHECK_EQ(pthread_cond_wait(&changed, &mutex), 0);
}

static void end(void) {
  turn++;
  CHECK_EQ(pthread_cond_broadcast(&changed), 0);
  CHECK_EQ(pthread_mutex_unlock(&mutex), 0);
}
#else
static void begin(int thread) { CHECK_EQ(thread, 0); }
static void end(void) { turn++; }
#endif

/* Makes the calls of one thread. Every turn leaves something in flight. */
static void *work(void *number) {
  const int thread = *(int *)number;
  const gex_Rank_t right = neighbour(1);
  char *const there = base[right] + (size_t)thread * 4 * BYTES;
  char one[BYTES], two[BYTES], back_one[BYTES], back_two[BYTES];
  int i;
  for (i = 0; i < ROUNDS; ++i) {
    const unsigned int message = (unsigned int)(2 * (thread * ROUNDS + i));
    gex_Event_t put, region;
    fill(one, BYTES, message);
    fill(two, BYTES, message + 1);
    memset(back_one, 0, BYTES);
    memset(back_two, 0, BYTES);

    begin(thread);
    put = gex_RMA_PutNB(team, right, there, one, BYTES, GEX_EVENT_DEFER, 0);
    gex_RMA_PutNBI(team, right, there + BYTES, two, BYTES, GEX_EVENT_DEFER, 0);
    gex_AM_RequestShort1(team, right, COUNT, 0, 1);
    end();

    /* At this point, all threads have implicit puts and an event of their own. */
    begin(thread);
    gex_NBI_Wait(GEX_EC_PUT, 0);
    gex_Event_Wait(put);
    end();

    /* For one round, all threads are in an access region. Each of them has a get in its region. */
    begin(thread);
    gex_NBI_BeginAccessRegion(0);
    gex_RMA_GetNBI(team, back_one, right, there, BYTES, 0);
    end();

    /* The first threads leave their regions while the others are still inside. */
    begin(thread);
    region = gex_NBI_EndAccessRegion(0);
    gex_RMA_GetNBI(team, back_two, right, there + BYTES, BYTES, 0);
    end();

    begin(thread);
    gex_NBI_Wait(GEX_EC_GET, 0);
    check_filled(back_two, BYTES, message + 1);
    end();

    begin(thread);
    gex_Event_Wait(region);
    check_filled(back_one, BYTES, message);
    end();
  }
  return NULL;
}

static void together(void) {
  int numbers[THREADS], i;
#if !defined(GASNET_SEQ)
  pthread_t threads[THREADS];
  for (i = 0; i < THREADS; ++i) {
    numbers[i] = i;
    CHECK_EQ(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  }
  for (i = 0; i < THREADS; ++i) CHECK_EQ(pthread_join(threads[i], NULL), 0);
#else
  for (i = 0; i < THREADS; ++i) {
    numbers[i] = i;
    work(&numbers[i]);
  }
#endif
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {
      {COUNT, (gex_AM_Fn_t)count_it, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, NULL, "count"},
      {COUNTED, (gex_AM_Fn_t)is_counted, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "counted"}};
  start(&argc, &argv, handlers, 2, SEGMENT);
  CHECK(gex_System_QueryMaxThreads() >= THREADS);
  together();
  CHECK_EQ(turn, THREADS * ROUNDS * 6);
  GASNET_BLOCKUNTIL(answers == THREADS * ROUNDS);
  barrier();
  CHECK_EQ(counted, THREADS * ROUNDS);
  finish();
  return 0;
}
