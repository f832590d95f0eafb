/* Mutexes, condition variables, and reader/writer locks. If the argument names a fault, the program
 * commits that fault. */
#include "threads.h"

#include <errno.h>

#include "programs.h"

#define ROUNDS 2000

static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
static gasnett_cond_t turned = GASNETT_COND_INITIALIZER;
static gasnett_rwlock_t rwlock = GASNETT_RWLOCK_INITIALIZER;
static int guarded, turn, pair[2];

/* Adds to a counter under the mutex, which is locked in both ways. */
GASNETT_BEGIN_EXTERNC
static void *add_guarded(void *number) {
    int i;
    (void)number;
    for (i = 0; i < ROUNDS; ++i) {
        gasnett_mutex_assertunlocked(&mutex);
        if (i % 2) {
            gasnett_mutex_lock(&mutex);
        } else {
            int result;
            while ((result = gasnett_mutex_trylock(&mutex)) != 0) {
                CHECK(result == EBUSY);
                gasnett_sched_yield();
            }
        }
        gasnett_mutex_assertlocked(&mutex);
        guarded += 1;
        gasnett_mutex_unlock(&mutex);
    }
    return NULL;
}

/* Readers must find both numbers of the pair equal. Writers increment both. */
static void *read_and_write(void *number) {
    int i;
    for (i = 0; i < ROUNDS; ++i) {
        const int writes = (i + (int)(intptr_t)number) % 4 == 0;
        gasnett_rwlock_assertunlocked(&rwlock);
        if (writes) {
            if (i % 2) gasnett_rwlock_wrlock(&rwlock);
            else while (gasnett_rwlock_trywrlock(&rwlock) != 0) gasnett_sched_yield();
            gasnett_rwlock_assertwrlocked(&rwlock);
            pair[0] += 1;
            pair[1] += 1;
        } else {
            if (i % 2) gasnett_rwlock_rdlock(&rwlock);
            else while (gasnett_rwlock_tryrdlock(&rwlock) != 0) gasnett_sched_yield();
            gasnett_rwlock_assertrdlocked(&rwlock);
            CHECK(pair[0] == pair[1]);
        }
        gasnett_rwlock_assertlocked(&rwlock);
        gasnett_rwlock_unlock(&rwlock);
    }
    return NULL;
}

#if GASNETT_THREAD_SAFE
/* Threads take turns, and each waits for its own turn. */
static void *take_turns(void *number) {
    int i;
    for (i = 0; i < 100; ++i) {
        gasnett_mutex_lock(&mutex);
        while (turn % THREADS != (int)(intptr_t)number) gasnett_cond_wait(&turned, &mutex);
        gasnett_mutex_assertlocked(&mutex);
        turn += 1;
        gasnett_cond_broadcast(&turned);
        gasnett_mutex_unlock(&mutex);
    }
    return NULL;
}

/* One thread waits for a signal from the other. */
static void *signal_one(void *number) {
    gasnett_mutex_lock(&mutex);
    if (number == NULL) {
        while (turn == 0) gasnett_cond_wait(&turned, &mutex);
        turn = 2;
    } else if (turn == 0) {
        turn = 1;
        gasnett_cond_signal(&turned);
    }
    gasnett_mutex_unlock(&mutex);
    return NULL;
}

/* The second thread finds that the first one holds the lock. */
static void *find_taken(void *number) {
    if (number == NULL) {
        CHECK(gasnett_mutex_trylock(&mutex) == EBUSY);
        CHECK(gasnett_rwlock_trywrlock(&rwlock) == EBUSY);
        CHECK(gasnett_rwlock_tryrdlock(&rwlock) == 0);
        gasnett_rwlock_unlock(&rwlock);
    }
    return NULL;
}
#endif
GASNETT_END_EXTERNC

static void test_made_at_run_time(void) {
    gasnett_mutex_t made;
    gasnett_cond_t made_too;
    gasnett_rwlock_t made_as_well;
    gasnett_mutex_init(&made);
    gasnett_cond_init(&made_too);
    gasnett_rwlock_init(&made_as_well);
    gasnett_mutex_lock(&made);
    gasnett_rwlock_rdlock(&made_as_well);
    gasnett_cond_signal(&made_too);
    gasnett_cond_broadcast(&made_too);
    gasnett_rwlock_unlock(&made_as_well);
    gasnett_mutex_unlock(&made);
    gasnett_cond_destroy(&made_too);
    gasnett_rwlock_destroy(&made_as_well);
    gasnett_mutex_destroy(&made);
    gasnett_mutex_init(&made);
    CHECK(gasnett_mutex_destroy_ignoreerr(&made) == 0);
}

/* Commits a fault that debug builds detect. Each fault must end the program. */
static int commit_fault(const char *fault) {
#define FAULT(name) (strcmp(fault, #name) == 0)
    if (FAULT(lock_twice)) gasnett_mutex_lock(&mutex), gasnett_mutex_lock(&mutex);
    if (FAULT(trylock_twice)) gasnett_mutex_lock(&mutex), (void)gasnett_mutex_trylock(&mutex);
    if (FAULT(unlock_free)) gasnett_mutex_unlock(&mutex);
    if (FAULT(destroy_held)) gasnett_mutex_lock(&mutex), gasnett_mutex_destroy(&mutex);
    if (FAULT(assert_locked)) gasnett_mutex_assertlocked(&mutex);
    if (FAULT(assert_unlocked)) gasnett_mutex_lock(&mutex), gasnett_mutex_assertunlocked(&mutex);
    if (FAULT(wait_without_lock)) gasnett_cond_wait(&turned, &mutex);
    if (FAULT(read_twice)) gasnett_rwlock_rdlock(&rwlock), gasnett_rwlock_rdlock(&rwlock);
    if (FAULT(write_twice)) gasnett_rwlock_wrlock(&rwlock), (void)gasnett_rwlock_trywrlock(&rwlock);
    if (FAULT(rwunlock_free)) gasnett_rwlock_unlock(&rwlock);
    if (FAULT(rwdestroy_held)) gasnett_rwlock_rdlock(&rwlock), gasnett_rwlock_destroy(&rwlock);
    if (FAULT(assert_rdlocked)) gasnett_rwlock_wrlock(&rwlock), gasnett_rwlock_assertrdlocked(&rwlock);
    if (FAULT(assert_wrlocked)) gasnett_rwlock_rdlock(&rwlock), gasnett_rwlock_assertwrlocked(&rwlock);
    if (FAULT(assert_rwlocked)) gasnett_rwlock_assertlocked(&rwlock);
    if (FAULT(assert_rwunlocked)) gasnett_rwlock_rdlock(&rwlock), gasnett_rwlock_assertunlocked(&rwlock);
    return 3;
}

int test_locks(int argc, char **argv) {
    if (argc > 1) return commit_fault(argv[1]);
    run_threads(&add_guarded);
    CHECK(guarded == ROUNDS * THREADS);
    run_threads(&read_and_write);
    CHECK(pair[0] == pair[1] && pair[0] == ROUNDS / 4 * THREADS);
#if GASNETT_THREAD_SAFE
    run_threads(&take_turns);
    CHECK(turn == 100 * THREADS);
    turn = 0;
    run_threads(&signal_one);
    CHECK(turn == 2);
    gasnett_mutex_lock(&mutex);
    gasnett_rwlock_rdlock(&rwlock);
    run_threads(&find_taken);
    gasnett_rwlock_unlock(&rwlock);
    gasnett_mutex_unlock(&mutex);
#else
    (void)turn;
#endif
    test_made_at_run_time();
    return 0;
}
