/* Prints what a rank gets from its launcher, and then ends in a given way: job [WORD...].
 *
 * "exit N": the last rank ends the job with this code while the other ranks wait. "return N": all
 * ranks return this code from main. "input": rank 0 prints what it reads. "terminate": rank 0 asks
 * its launcher to end. Other words are only printed. */
#include <gasnet.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wait_for_the_end(void) {
  for (;;) gasnet_AMPoll();
}

int main(int argc, char **argv) {
  const char *word, *number;
  int i;
#ifdef CUTS_ARGUMENTS
  /* Cuts the arguments as programs do that parse "1:2" with strtok before they initialise. */
  for (i = 1; i < argc; ++i) strtok(argv[i], ":");
#endif
#ifdef NO_ARGUMENTS
  if (gasnet_init(NULL, NULL) != GASNET_OK) return 99;
#else
  if (gasnet_init(&argc, &argv) != GASNET_OK) return 99;
#endif
  if (gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) != GASNET_OK) return 98;
  word = argc > 1 ? argv[1] : "";
  number = argc > 2 ? argv[2] : "0";
  if (!strcmp(word, "exit")) {
    if (gasnet_mynode() == gasnet_nodes() - 1) gasnet_exit(atoi(number));
    wait_for_the_end();
  }
  if (!strcmp(word, "return")) return atoi(number);
  if (!strcmp(word, "terminate")) {
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_mynode() == 0) kill(getppid(), SIGTERM);
    wait_for_the_end();
  }
  if (!strcmp(word, "input")) {
    char line[100];
    if (fgets(line, sizeof line, stdin)) printf("rank %d read %s", (int)gasnet_mynode(), line);
  } else {
    const char *name = strrchr(argv[0], '/');
    printf("rank %d of %d: %s", (int)gasnet_mynode(), (int)gasnet_nodes(), name ? name + 1 : argv[0]);
    for (i = 1; i < argc; ++i) printf(" <%s>", argv[i]);
    printf("\n");
  }
  fflush(stdout);
  gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
  gasnet_exit(0);
  return 0;
}
