/* MPI and GASNet in one process: `both FIRST`, where FIRST is the one to start first, `mpi` or
   `gasnet`. Each round exchanges data by both, and both must agree on the ranks. */

#include <gasnet.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 10

static void check(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "both.c: %s\n", what);
    exit(1);
}

static void start_mpi(int *argc, char ***argv) {
    check(MPI_Init(argc, argv) == MPI_SUCCESS, "MPI_Init");
}

static void start_gasnet(int *argc, char ***argv) {
    check(gasnet_init(argc, argv) == GASNET_OK, "gasnet_init");
    check(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_OK, "gasnet_attach");
}

int main(int argc, char **argv) {
    check(argc == 2, "usage: both mpi|gasnet");
    if (strcmp(argv[1], "mpi") == 0) {
        start_mpi(&argc, &argv);
        start_gasnet(&argc, &argv);
    } else {
        start_gasnet(&argc, &argv);
        start_mpi(&argc, &argv);
    }
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(rank == (int)gasnet_mynode() && size == (int)gasnet_nodes(), "the ranks differ");
    gasnet_node_t right = (gasnet_node_t)((rank + 1) % size);
    int left = (rank + size - 1) % size;
    gasnet_seginfo_t *segments = malloc(sizeof *segments * (size_t)size);
    check(segments && gasnet_getSegmentInfo(segments, size) == GASNET_OK, "gasnet_getSegmentInfo");
    for (int round = 0; round < ROUNDS; round++) {
        long sum = 0, own = rank + round;
        MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        check(sum == (long)size * (size - 1) / 2 + (long)size * round, "MPI_Allreduce");
        long value = 1000 * round + rank;
        gasnet_put(right, segments[right].addr, &value, sizeof value);
        MPI_Barrier(MPI_COMM_WORLD);
        long got = *(volatile long *)segments[rank].addr;
        check(got == 1000 * round + left, "gasnet_put");
        gasnet_barrier_notify(round, 0);
        check(gasnet_barrier_wait(round, 0) == GASNET_OK, "gasnet_barrier");
    }
    check(MPI_Finalize() == MPI_SUCCESS, "MPI_Finalize");
    gasnet_exit(0);
    return 1;
}
