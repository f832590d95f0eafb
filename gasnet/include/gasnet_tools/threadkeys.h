/* Pointers of which each thread has its own: null at first; one pointer of the process where there is one thread.
 *
 * A key is a variable of the compiler's thread-local storage, so nothing needs to be initialised; the functions for that
 * are there because the interface has them. */
#ifndef CONDUIT_TOOLS_THREADKEYS_H
#define CONDUIT_TOOLS_THREADKEYS_H

#include "basics.h"

#if defined(GASNETT_THREAD_SAFE)
#define CONDUIT_THREADKEY_STORAGE __thread
#else
#define CONDUIT_THREADKEY_STORAGE
#endif

/* In one file, outside of functions. */
#define GASNETT_THREADKEY_DEFINE(key) CONDUIT_THREADKEY_STORAGE void *conduit_threadkey_##key
/* Wherever else it is used. */
#define GASNETT_THREADKEY_DECLARE(key) extern CONDUIT_THREADKEY_STORAGE void *conduit_threadkey_##key

/* Realm takes this function's address. */
CONDUIT_LOCAL void _gasneti_threadkey_init(void *key) { (void)key; }

#define gasnett_threadkey_init(key) ((void)&conduit_threadkey_##key)
#define gasnett_threadkey_get(key) (conduit_threadkey_##key)
#define gasnett_threadkey_set(key, value) ((void)(conduit_threadkey_##key = (void *)(value)))
#define gasnett_threadkey_get_noinit(key) gasnett_threadkey_get(key)
#define gasnett_threadkey_set_noinit(key, value) gasnett_threadkey_set(key, value)

#endif
