/* Thread-local pointers, initially null. In a single-threaded program a key is one pointer of
 * the process.
 *
 * A key is a variable in the compiler's thread-local storage, so nothing needs to be
 * initialised. The functions for initialisation exist because the interface has them. */
#ifndef CONDUIT_TOOLS_THREADKEYS_H
#define CONDUIT_TOOLS_THREADKEYS_H

#include "basics.h"

#if defined(GASNETT_THREAD_SAFE)
#define CONDUIT_THREADKEY_STORAGE __thread
#else
#define CONDUIT_THREADKEY_STORAGE
#endif

/* To be placed in one file, outside functions. */
#define GASNETT_THREADKEY_DEFINE(key) CONDUIT_THREADKEY_STORAGE void *conduit_threadkey_##key
/* To be placed wherever else the key is used. */
#define GASNETT_THREADKEY_DECLARE(key) extern CONDUIT_THREADKEY_STORAGE void *conduit_threadkey_##key

/* Realm takes this function's address. */
CONDUIT_LOCAL void _gasneti_threadkey_init(void *key) { (void)key; }

#define gasnett_threadkey_init(key) ((void)&conduit_threadkey_##key)
#define gasnett_threadkey_get(key) (conduit_threadkey_##key)
#define gasnett_threadkey_set(key, value) ((void)(conduit_threadkey_##key = (void *)(value)))
#define gasnett_threadkey_get_noinit(key) gasnett_threadkey_get(key)
#define gasnett_threadkey_set_noinit(key, value) gasnett_threadkey_set(key, value)

#endif
