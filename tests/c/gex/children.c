/* A rank creates children by fork during a flood. If a child makes a call that would use the
 * network, the call ends the child with a message that gives the reason. Exiting ends only the
 * child and doesn't write what the rank has buffered. The children must not disturb the ranks. */
#include "start.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUDGE = GEX_AM_INDEX_BASE };

/* The number of requests, and also of puts, to the next rank between two children. */
#define FLOOD 200
/* The exit code of a child whose call was not refused. */
#define NOT_REFUSED 77
/* The text in the ranks' output buffers. */
#define BUFFERED "not written yet"

static volatile unsigned int nudged, answered;

static void nudge(gex_Token_t token) {
  nudged++;
  gex_AM_ReplyShort0(token, NUDGE + 1, 0);
}

static void answer(gex_Token_t token) {
  (void)token;
  answered++;
}

static unsigned int floods;

static void flood(void) {
  unsigned int i;
  ++floods;
  for (i = 0; i < FLOOD; ++i) {
    gex_AM_RequestShort0(team, neighbour(1), NUDGE, 0);
    gex_RMA_PutBlocking(team, neighbour(1), base[neighbour(1)], &floods, sizeof(floods), 0);
  }
}

static void poll_child(void) { gasnet_AMPoll(); }
static void request_child(void) { gex_AM_RequestShort0(team, neighbour(1), NUDGE, 0); }
static void put_child(void) {
  const unsigned int wrong = 0;
  gex_RMA_PutBlocking(team, neighbour(1), base[neighbour(1)], &wrong, sizeof(wrong), 0);
}
static void get_child(void) {
  unsigned int got;
  gex_RMA_GetBlocking(team, &got, neighbour(1), base[neighbour(1)], sizeof(got), 0);
}
static void barrier_child(void) { barrier(); }
static void libc_exit_child(void) { exit(8); }
static void gasnet_exit_child(void) { gasnet_exit(9); }

static const struct {
  void (*act)(void);
  int code, refused, writes;
} children[] = {{poll_child, 1, 1, 0},      {request_child, 1, 1, 0},   {put_child, 1, 1, 0},        {get_child, 1, 1, 0},
                {barrier_child, 1, 1, 0}, {libc_exit_child, 8, 0, 1}, {gasnet_exit_child, 9, 0, 0}};

#define CHILDREN (sizeof(children) / sizeof(children[0]))

/* Creates a child that calls `act`, and returns its process id. Its messages and output can be read
 * from the descriptor that is stored in `messages`. */
static pid_t make(void (*act)(void), int *messages) {
  int ends[2];
  pid_t child;
  CHECK_EQ(pipe(ends), 0);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    act();
    _exit(NOT_REFUSED);
  }
  close(ends[1]);
  *messages = ends[0];
  return child;
}

static void ended(size_t which, pid_t child, int messages) {
  char text[1024], named[128];
  size_t length = 0;
  ssize_t count;
  int status = 0;
  while (length < sizeof(text) - 1 && (count = read(messages, text + length, sizeof(text) - 1 - length)) > 0)
    length += (size_t)count;
  text[length] = 0;
  close(messages);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), children[which].code);
  sprintf(named, "process %ld is a child of rank %d (fork)", (long)child, (int)me);
  if (children[which].refused && !strstr(text, named)) {
    fprintf(stderr, "child %d says: %s\n", (int)which, text);
    CHECK(strstr(text, named) != NULL);
  }
  CHECK_EQ(strstr(text, BUFFERED) != NULL, children[which].writes);
  if (!children[which].refused) CHECK_EQ(length, children[which].writes ? strlen(BUFFERED) : 0);
}

/* The target of puts is a constant, so that compilers know it. */
#define TARGET 0

/* Makes a put, creates a child that puts, and makes another put, all in one function. A compiler
 * may then skip the check in the child, because the first put has made it already. Even so, the
 * child's put must be refused or a signal must end the child, and no other rank may get the child's
 * bytes. The child's own rank may get them, because they share the memory. */
__attribute__((__flatten__)) static void puts_around_a_child(void) {
  char *const at = base[TARGET] + (1 + me) * sizeof(unsigned int);
  const unsigned int before = 5, wrong = 6, after = 7;
  unsigned int got = 0;
  int status = 0;
  pid_t child;
  gex_RMA_PutBlocking(team, TARGET, at, &before, sizeof(before), 0);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL);
    close(2);
    gex_RMA_PutBlocking(team, TARGET, at, &wrong, sizeof(wrong), 0);
    _exit(NOT_REFUSED);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  gex_RMA_GetBlocking(team, &got, TARGET, at, sizeof(got), 0);
  if (WIFSIGNALED(status)) CHECK_EQ(WTERMSIG(status), SIGSEGV);
  else if (WEXITSTATUS(status) != 1) CHECK(me == TARGET && WEXITSTATUS(status) == NOT_REFUSED);
  if (me != TARGET) CHECK_EQ(got, before);
  gex_RMA_PutBlocking(team, TARGET, at, &after, sizeof(after), 0);
  gex_RMA_GetBlocking(team, &got, TARGET, at, sizeof(got), 0);
  CHECK_EQ(got, after);
}

int main(int argc, char **argv) {
  gex_AM_Entry_t handlers[] = {
    {NUDGE, (gex_AM_Fn_t)nudge, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "nudge"},
    {NUDGE + 1, (gex_AM_Fn_t)answer, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "answer"}};
  unsigned int got = 0;
  size_t which;
  start(&argc, &argv, handlers, 2, GASNET_PAGESIZE);
  fputs(BUFFERED, stdout);
  barrier();
  flood();
  for (which = 0; which < CHILDREN; ++which) {
    int messages;
    const pid_t child = make(children[which].act, &messages);
    flood();
    ended(which, child, messages);
  }
  puts_around_a_child();
  GASNET_BLOCKUNTIL(answered == floods * FLOOD);
  barrier();
  CHECK_EQ(nudged, floods * FLOOD);
  gex_RMA_GetBlocking(team, &got, neighbour(1), base[neighbour(1)], sizeof(got), 0);
  CHECK_EQ(got, floods);
  finish();
  return 0;
}
