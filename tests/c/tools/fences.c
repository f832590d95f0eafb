/* Fences. A flag announces a message, and only the fences order the two. Some processors would keep
 * the order without fences, but if the compiler dropped a fence, the test could fail on every
 * system. */
#include "threads.h"

#include "programs.h"

#define ROUNDS 20000

static gasnett_strongatomic32_t message[THREADS];
static gasnett_strongatomic32_t flag[THREADS];

/* Each thread increments its message and then its flag. A thread that sees the flag must also see
 * the message. */
GASNETT_BEGIN_EXTERNC
static void *pass_messages(void *number) {
    const int self = (int)(intptr_t)number;
    const int other = (self + 1) % THREADS;
    uint32_t i;
    for (i = 1; i <= ROUNDS; ++i) {
        uint32_t seen;
        gasnett_strongatomic32_set(&message[self], i, 0);
        switch (i % 3) {
        case 0: gasnett_local_wmb(); break;
        case 1: gasnett_local_mb(); break;
        default: gasnett_weak_wmb(); gasnett_weak_mb();
        }
        gasnett_strongatomic32_set(&flag[self], i, 0);

        seen = gasnett_strongatomic32_read(&flag[other], 0);
        switch (i % 3) {
        case 0: gasnett_local_rmb(); break;
        case 1: gasnett_local_mb(); break;
        default: gasnett_weak_rmb(); gasnett_weak_mb();
        }
        CHECK(gasnett_strongatomic32_read(&message[other], 0) >= seen);
        gasnett_spinloop_hint();
    }
    return NULL;
}
GASNETT_END_EXTERNC

int test_fences(int argc, char **argv) {
    (void)argc, (void)argv;
    run_threads(&pass_messages);
    gasnett_compiler_fence();
    return 0;
}
