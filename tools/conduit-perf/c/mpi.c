/* Measures the cost of MPI's calls between two ranks, each on its own processor:
 * `mpi PROCESSOR0 PROCESSOR1 ROUND_TRIPS BLOCKS`.
 *
 * Prints a line "<figure> <nanoseconds>" for each figure. The figures are the time of a round
 * trip of 8 bytes with MPI_Send and MPI_Recv, and the times of a block of 1 MiB in a stream
 * of MPI_Isend and in a stream of MPI_Put into a window, with 16 blocks at a time. */
#define _GNU_SOURCE /* for the affinity of processes */
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { BLOCK = 1 << 20, UNDER_WAY = 16 };

static int rank;
static char *block, *window_memory;
static MPI_Win window;

static void round_trips(int count) {
  char word[8] = {0};
  for (int trip = 0; trip < count; trip++) {
    if (rank == 0) MPI_Send(word, sizeof word, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(word, sizeof word, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(word, sizeof word, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

/* Sends blocks. Ends with an empty message from the receiver, which confirms that all have
 * arrived. */
static void sends(int count) {
  MPI_Request requests[UNDER_WAY];
  for (int done = 0; done < count; done += UNDER_WAY) {
    for (int i = 0; i < UNDER_WAY; i++) {
      if (rank == 0) MPI_Isend(block, BLOCK, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
      else MPI_Irecv(block, BLOCK, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(UNDER_WAY, requests, MPI_STATUSES_IGNORE);
  }
  if (rank == 0) MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

/* Puts blocks. Meanwhile the other rank waits inside MPI for an empty message. */
static void puts_of_blocks(int count) {
  if (rank == 1) {
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  for (int done = 0; done < count; done += UNDER_WAY) {
    for (int i = 0; i < UNDER_WAY; i++) MPI_Put(block, BLOCK, MPI_BYTE, 1, 0, BLOCK, MPI_BYTE, window);
    MPI_Win_flush(1, window);
  }
  MPI_Send(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
}

static void measure(const char *name, void (*figure)(int), int count) {
  figure(count / 8 + 1); /* sets up connections, buffers and pages */
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  figure(count);
  double time = MPI_Wtime() - start;
  if (rank == 0) printf("%s %.1f\n", name, time * 1e9 / count);
}

/* Checks that the data sent or put has arrived. */
static void check(const char *where, char value) {
  if (rank == 1 && (where[0] != value || where[BLOCK - 1] != value)) {
    fprintf(stderr, "a block arrived corrupted\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int count, char **arguments) {
  /* The system kills this rank when the launcher ends. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&count, &arguments);
  int ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (count != 5 || ranks != 2) {
    fprintf(stderr, "usage, with 2 ranks: mpi PROCESSOR0 PROCESSOR1 ROUND_TRIPS BLOCKS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  cpu_set_t processor;
  CPU_ZERO(&processor);
  CPU_SET(atoi(arguments[1 + rank]), &processor);
  if (sched_setaffinity(0, sizeof processor, &processor)) perror("sched_setaffinity");
  int blocks = (atoi(arguments[4]) + UNDER_WAY - 1) / UNDER_WAY * UNDER_WAY;
  block = malloc(BLOCK);
  window_memory = malloc(BLOCK);
  if (!block || !window_memory) MPI_Abort(MPI_COMM_WORLD, 1);
  /* The program allocates the window itself, because MPI would allocate memory that the ranks
   * share. */
  MPI_Win_create(window_memory, BLOCK, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  memset(block, 1 + rank, BLOCK);
  memset(window_memory, 0, BLOCK);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);

  measure("round-trip", round_trips, atoi(arguments[3]));
  measure("isend", sends, blocks);
  check(block, 1);
  memset(block, 3, BLOCK);
  measure("put", puts_of_blocks, blocks);
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  check(window_memory, 3);

  MPI_Win_free(&window);
  free(block);
  free(window_memory);
  MPI_Finalize();
  return 0;
}
