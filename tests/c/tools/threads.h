/* Runs a function in several threads, or once if there is only one thread. */
#ifndef CONDUIT_TEST_THREADS_H
#define CONDUIT_TEST_THREADS_H

#include <gasnet_tools.h>

#include "../check.h"

#if GASNETT_THREAD_SAFE
#define THREADS 4
#include <pthread.h>
#else
#define THREADS 1
#endif

GASNETT_BEGIN_EXTERNC
typedef void *(*thread_function)(void *number);
GASNETT_END_EXTERNC

static __inline__ void run_threads(thread_function function) {
#if GASNETT_THREAD_SAFE
    pthread_t threads[THREADS];
    int i;
    for (i = 0; i < THREADS; ++i) CHECK(pthread_create(&threads[i], NULL, function, (void *)(intptr_t)i) == 0);
    for (i = 0; i < THREADS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
#else
    (void)function((void *)(intptr_t)0);
#endif
}

#endif
