/* Ends a job in a given way: ending HOW CODE. The last rank ends it, while the other ranks serve
 * the network. The Rust test checks the job's exit code and output. */
#include "start.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END = GEX_AM_INDEX_BASE, END_BY_REPLY, NUDGE };

static int code;
static gex_HSL_t lock = GEX_HSL_INITIALIZER;
static volatile int nudged;

static void end(gex_Token_t token) {
  (void)token;
  gasnet_exit(code);
}

static void nudge(gex_Token_t token) {
  (void)token;
  nudged++;
}

static void reply(gex_Token_t token) { gex_AM_ReplyShort0(token, END, 0); }

static void at_exit(void) {
  fprintf(stderr, "rank %d: atexit\n", (int)gex_System_QueryJobRank());
}

static void on_quit(int number) {
  static const char text[] = "got SIGQUIT\n";
  (void)number;
  if (write(2, text, sizeof(text) - 1) < 0) _exit(CHECK_FAILED);
  gasnet_exit(code + 1);
}

#if defined(GASNET_PAR)
static void *end_on_thread(void *unused) {
  (void)unused;
  gasnet_exit(code);
  return NULL;
}
#endif

/* These functions are global, so that their names appear in a backtrace. */
void abort_here(void);
void fatal_here(void);
void fault_here(void);
void abort_here(void) { abort(); }
void fatal_here(void) { gasnett_fatalerror("by %s", "design"); }
void fault_here(void) { raise(SIGSEGV); }

/* Blocks while it holds a stream's lock, as a thread does that waits for input. */
static void *read_nothing(void *stream) {
  char line[10];
  if (fgets(line, sizeof(line), (FILE *)stream)) gasnet_exit(CHECK_FAILED);
  return NULL;
}

static void wait_for_input(void) {
  int ends[2];
  pthread_t thread;
  FILE *stream;
  CHECK_EQ(pipe(ends), 0);
  stream = fdopen(ends[0], "r");
  CHECK_EQ(pthread_create(&thread, NULL, read_nothing, stream), 0);
  while (ftrylockfile(stream) == 0) {
    funlockfile(stream);
    sched_yield();
  }
}

/* The library calls this function within attach, while it holds the launcher's connection. */
static void end_in_attach(void *base_of_segment, uintptr_t bytes) {
  (void)base_of_segment;
  (void)bytes;
  gasnet_exit(code);
}

static void serve(void) {
  for (;;) gasnet_AMPoll();
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {
    {END, (gex_AM_Fn_t)end, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQREP, 0, NULL, "end"},
    {END_BY_REPLY, (gex_AM_Fn_t)reply, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "end by reply"},
    {NUDGE, (gex_AM_Fn_t)nudge, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "nudge"}};
  const char *how = argc > 1 ? argv[1] : "";
  int last;
  code = argc > 2 ? atoi(argv[2]) : 0;

  if (!strcmp(how, "before-attach")) {
    CHECK_EQ(gex_Client_Init(&client, &ep, &team, "ENDING", &argc, &argv, 0), GASNET_OK);
    if (gex_System_QueryJobRank() == gex_System_QueryJobSize() - 1) gasnet_exit(code);
    serve();
  }
  if (!strcmp(how, "attach-hook")) gasnet_client_attach_hook = end_in_attach;
  if (!strcmp(how, "closed-streams")) {
    close(0);
    close(1);
  }
  start(&argc, &argv, handlers, 3, GASNET_PAGESIZE);
  last = me == size - 1;
  printf("rank %d is there\n", (int)me);
  barrier();

  if (!strcmp(how, "exit")) {
    /* The output of this rank must not be lost, and functions registered with atexit must not be
     * called. */
    CHECK_EQ(atexit(at_exit), 0);
    if (last) gasnet_exit(code);
  } else if (!strcmp(how, "all")) {
    gasnet_exit(code);
  } else if (!strcmp(how, "handler")) {
    if (last) gex_AM_RequestShort0(team, 0, END, 0);
  } else if (!strcmp(how, "reply-handler")) {
    if (last) gex_AM_RequestShort0(team, 0, END_BY_REPLY, 0);
  } else if (!strcmp(how, "lock")) {
    gex_HSL_Lock(&lock);
    if (last) gasnet_exit(code);
  } else if (!strcmp(how, "prepared")) {
    if (last) {
      CHECK(gex_AM_PrepareRequestMedium(team, 0, NULL, 1, 100, NULL, 0, 0) != GEX_AM_SRCDESC_NO_OP);
      gasnet_exit(code);
    }
#if defined(GASNET_PAR)
  } else if (!strcmp(how, "thread")) {
    pthread_t thread;
    if (last) CHECK_EQ(pthread_create(&thread, NULL, end_on_thread, NULL), 0);
#endif
  } else if (!strcmp(how, "return")) {
    return code;
  } else if (!strcmp(how, "return-one")) {
    if (last) return code;
  } else if (!strcmp(how, "libc-exit")) {
    CHECK_EQ(atexit(at_exit), 0);
    if (last) exit(code);
  } else if (!strcmp(how, "leave")) {
    /* With GASNET_CATCH_EXIT=0, the other ranks continue without the rank that leaves. */
    if (last) return 0;
    gex_AM_RequestShort0(team, (me + 1) % (size - 1), NUDGE, 0);
    GASNET_BLOCKUNTIL(nudged == 1);
    if (me == 0) {
      GASNET_BLOCKUNTIL(nudged == 1);
      gasnet_exit(code);
    }
  } else if (!strcmp(how, "quit")) {
    signal(SIGQUIT, on_quit);
    barrier();
    if (last) gasnet_exit(code);
  } else if (!strcmp(how, "spin")) {
    /* Ranks that make no more calls into the library must also end. */
    if (last) gasnet_exit(code);
    for (;;) {
    }
  } else if (!strcmp(how, "reading")) {
    wait_for_input();
    if (last) gasnet_exit(code);
  } else if (!strcmp(how, "reading-fatal")) {
    wait_for_input();
    if (last) gex_RMA_PutBlocking(team, 0, base[0] + GASNET_PAGESIZE, &code, sizeof(code), 0);
  } else if (!strcmp(how, "closed-streams")) {
    /* The library must not use the numbers of the descriptors that were closed. */
    char byte;
    gex_RMA_PutBlocking(team, neighbour(1), base[neighbour(1)], &code, sizeof(code), 0);
    barrier();
    CHECK_EQ(read(0, &byte, 1), 0);
    CHECK(open("/dev/null", O_RDWR) > 2);
    CHECK(dup2(2, 1) == 1);
    barrier();
    if (last) gasnet_exit(code);
  } else if (!strcmp(how, "start-other")) {
    /* A program that a rank starts must be a job of its own. */
    if (last) {
      char line[4096];
      snprintf(line, sizeof(line), "'%s' exit %d", argv[0], code + 1);
      CHECK_EQ(WEXITSTATUS(system(line)), code + 1);
      gasnet_exit(code);
    }
  } else if (!strcmp(how, "last-words")) {
    /* The other ranks have returned from main by the time this rank writes. */
    if (me == 0) {
      gasnett_tick_t begin = gasnett_ticks_now();
      while (gasnett_ticks_to_ns(gasnett_ticks_now() - begin) < 300 * 1000 * 1000) gasnet_AMPoll();
      printf("last words\n");
    }
    return code;
  } else if (!strcmp(how, "abort")) {
    if (last) abort_here();
  } else if (!strcmp(how, "fatal")) {
    if (last) fatal_here();
  } else if (!strcmp(how, "fault")) {
    if (last) fault_here();
  } else {
    fprintf(stderr, "ending: unknown way %s\n", how);
    return 2;
  }
  serve();
  return 0;
}
