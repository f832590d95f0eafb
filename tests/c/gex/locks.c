/* Handler-safe locks. In PAR, several threads communicate, lock and wait at the same time. */
#include "start.h"

#if defined(GASNET_PAR)
  #include <pthread.h>
#endif

enum { ADD = GEX_AM_INDEX_BASE, DONE };
#define THREADS 4
#define ROUNDS 200
#define SEGMENT ((uintptr_t)1 << 17)

static gex_HSL_t at_rest = GEX_HSL_INITIALIZER;
static gex_HSL_t lock;
/* The lock protects these counters. */
static int sum, added, done;

/* A handler locks too. It must release the lock before it replies. */
static void add(gex_Token_t token, gex_AM_Arg_t number) {
  gex_HSL_Lock(&lock);
  sum += number;
  added++;
  gex_HSL_Unlock(&lock);
  gex_AM_ReplyShort0(token, DONE, 0);
}

static void is_done(gex_Token_t token) {
  (void)token;
  gex_HSL_Lock(&lock);
  done++;
  gex_HSL_Unlock(&lock);
}

static int read_locked(const int *number) {
  int value;
  gex_HSL_Lock(&lock);
  value = *number;
  gex_HSL_Unlock(&lock);
  return value;
}

static void alone(void) {
  gex_HSL_t other;
  gex_HSL_Init(&other);
  gex_HSL_Lock(&at_rest);
  gex_HSL_Lock(&other);
  gex_HSL_Unlock(&other);
  gex_HSL_Unlock(&at_rest);
  CHECK_EQ(gex_HSL_Trylock(&other), GASNET_OK);
  gex_HSL_Unlock(&other);
  gex_HSL_Destroy(&other);
}

static void *work(void *number) {
  const int thread = *(int *)number;
  const gex_Rank_t right = neighbour(1);
  char *const there = base[right] + thread * 1024;
  char source[1000], back[1000];
  int i;
  for (i = 0; i < ROUNDS; ++i) {
    gex_Event_t events[2];
    gex_AM_RequestShort1(team, right, ADD, 0, 1);
    fill(source, sizeof(source), (unsigned int)(thread * ROUNDS + i));
    /* Each thread must have its own implicit operations. */
    gex_RMA_PutNBI(team, right, there, source, sizeof(source), GEX_EVENT_DEFER, 0);
    gex_NBI_Wait(GEX_EC_PUT, 0);
    gex_RMA_GetNBI(team, back, right, there, sizeof(back), 0);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    check_filled(back, sizeof(back), (unsigned int)(thread * ROUNDS + i));
    memset(back, 0, sizeof(back));
    gex_NBI_BeginAccessRegion(0);
    gex_RMA_GetNBI(team, back, right, there, 500, 0);
    gex_RMA_GetNBI(team, back + 500, right, there + 500, 500, 0);
    events[0] = gex_NBI_EndAccessRegion(0);
    events[1] = gex_RMA_PutNB(team, right, there, source, sizeof(source), GEX_EVENT_NOW, 0);
    gex_Event_WaitAll(events, 2, 0);
    check_filled(back, sizeof(back), (unsigned int)(thread * ROUNDS + i));
    gex_HSL_Lock(&lock);
    sum++;
    gex_HSL_Unlock(&lock);
    if (i % 16 == 0) gasnet_AMPoll();
  }
  return NULL;
}

#if defined(GASNET_PAR)
static void *try_held(void *unused) {
  (void)unused;
  CHECK_EQ(gex_HSL_Trylock(&at_rest), GASNET_ERR_NOT_READY);
  return NULL;
}

static void together(void) {
  pthread_t threads[THREADS];
  int numbers[THREADS], i;
  gex_HSL_Lock(&at_rest);
  CHECK_EQ(pthread_create(&threads[0], NULL, try_held, NULL), 0);
  CHECK_EQ(pthread_join(threads[0], NULL), 0);
  gex_HSL_Unlock(&at_rest);
  for (i = 0; i < THREADS; ++i) {
    numbers[i] = i;
    CHECK_EQ(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  }
  for (i = 0; i < THREADS; ++i) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}
#else
static void together(void) {
  int i;
  for (i = 0; i < THREADS; ++i) work(&i);
}
#endif

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {{ADD, (gex_AM_Fn_t)add, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, NULL, "add"},
                               {DONE, (gex_AM_Fn_t)is_done, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "done"}};
  gex_HSL_Init(&lock);
  start(&argc, &argv, handlers, 2, SEGMENT);
  alone();
  together();
  GASNET_BLOCKUNTIL(read_locked(&done) == THREADS * ROUNDS);
  barrier();
  CHECK_EQ(read_locked(&added), THREADS * ROUNDS);
  CHECK_EQ(read_locked(&sum), 2 * THREADS * ROUNDS);
  gex_HSL_Destroy(&lock);
  finish();
  return 0;
}
