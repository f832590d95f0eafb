/* Thread keys. In each thread a key must be null at first, and then hold the value that the thread
 * has set. */
#include "threadkeys.h"

#include "programs.h"
#include "threads.h"

GASNETT_THREADKEY_DEFINE(shared_key);
GASNETT_THREADKEY_DEFINE(own_key);

GASNETT_BEGIN_EXTERNC
static void *use_keys(void *number) {
    int here = (int)(intptr_t)number;
    int i;
    CHECK(gasnett_threadkey_get(shared_key) == NULL);
    gasnett_threadkey_set(shared_key, &here);
    gasnett_threadkey_init(own_key);
    CHECK(gasnett_threadkey_get_noinit(own_key) == NULL);
    for (i = 0; i < 100; ++i) {
        CHECK(gasnett_threadkey_get(shared_key) == &here);
        gasnett_threadkey_set_noinit(own_key, &i);
        gasnett_threadkey_init(own_key);
        gasnett_sched_yield();
        CHECK(gasnett_threadkey_get_noinit(own_key) == &i);
    }
    set_from_elsewhere(&i);
    CHECK(gasnett_threadkey_get(shared_key) == &i);
    gasnett_threadkey_set(own_key, NULL);
    gasnett_threadkey_set(shared_key, NULL);
    return NULL;
}
GASNETT_END_EXTERNC

int test_threadkeys(int argc, char **argv) {
    /* Realm takes the address of this function. */
    void (*volatile init)(void *) = &_gasneti_threadkey_init;
    (void)argc, (void)argv;
    CHECK(init != NULL);
    run_threads(&use_keys);
    return 0;
}
