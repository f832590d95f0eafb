/* Mutexes, condition variables and reader/writer locks: POSIX locks in threaded programs,
 * nothing in single-threaded ones.
 *
 * Debug builds record the holders. They end the process, and report the location of the call,
 * when a lock is taken twice, released by another thread, or destroyed while held.
 * GASNETT_USE_TRUE_MUTEXES=1 selects real locks in any mode. */
#ifndef CONDUIT_TOOLS_LOCKS_H
#define CONDUIT_TOOLS_LOCKS_H

#include "failures.h"
#include <errno.h>

#ifndef GASNETT_USE_TRUE_MUTEXES
#define GASNETT_USE_TRUE_MUTEXES 0
#endif
#if defined(GASNETT_THREAD_SAFE) || (defined(GASNETT_USE_TRUE_MUTEXES) && GASNETT_USE_TRUE_MUTEXES)
#define CONDUIT_TRUE_LOCKS 1
#include <pthread.h>
#else
#define CONDUIT_TRUE_LOCKS 0
#endif

/* The location of a call, which is passed to the functions below, as parameters and as
 * arguments. */
#define CONDUIT_PLACE const char *conduit_function, const char *conduit_file, int conduit_line
#define CONDUIT_HERE GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__
#define CONDUIT_SAME_PLACE conduit_function, conduit_file, conduit_line
#define CONDUIT_PLACE_UNUSED ((void)conduit_function, (void)conduit_file, (void)conduit_line)

/* In debug builds, ends the process with an error at the caller's location unless the condition
 * holds. */
#if CONDUIT_TOOLS_DEBUG
#define CONDUIT_LOCK_CHECK(condition, message) \
    ((condition) ? (void)0 : conduit_tools_fatal(conduit_function, conduit_file, conduit_line, message))
#define CONDUIT_LOCK_RESULT(call, what) CONDUIT_LOCK_CHECK((call) == 0, what " failed")
#else
#define CONDUIT_LOCK_CHECK(condition, message) ((void)0)
#define CONDUIT_LOCK_RESULT(call, what) ((void)(call))
#endif

/* ---- Types ---- */
#if CONDUIT_TRUE_LOCKS
typedef struct {
    pthread_mutex_t conduit_mutex;
#if CONDUIT_TOOLS_DEBUG
    /* The thread that holds the mutex, as a number other than 0, or 0 while no thread holds it. */
    volatile uintptr_t conduit_holder;
#endif
} gasnett_mutex_t;
typedef struct {
    pthread_cond_t conduit_condition;
} gasnett_cond_t;
/* Space for a POSIX lock, which <pthread.h> hides in strict C99. Zero is its initial state. */
typedef union {
    unsigned char conduit_room[64];
    uint64_t conduit_alignment;
} gasnett_rwlock_t;
#if CONDUIT_TOOLS_DEBUG
#define GASNETT_MUTEX_INITIALIZER { PTHREAD_MUTEX_INITIALIZER, 0 }
#else
#define GASNETT_MUTEX_INITIALIZER { PTHREAD_MUTEX_INITIALIZER }
#endif
#define GASNETT_COND_INITIALIZER { PTHREAD_COND_INITIALIZER }
#define GASNETT_RWLOCK_INITIALIZER { { 0 } }
#else
/* conduit_held is 0 if the lock is free and 1 if it is held. In a reader/writer lock, 1 means
 * that a reader holds it and 2 that a writer does. Only debug builds read conduit_held. */
typedef struct {
    volatile int conduit_held;
} gasnett_mutex_t;
typedef struct {
    int conduit_unused;
} gasnett_cond_t;
typedef struct {
    volatile int conduit_held;
} gasnett_rwlock_t;
#define GASNETT_MUTEX_INITIALIZER { 0 }
#define GASNETT_COND_INITIALIZER { 0 }
#define GASNETT_RWLOCK_INITIALIZER { 0 }
#endif

GASNETT_BEGIN_EXTERNC

/* The library's operations on reader/writer locks. They return 0 or a POSIX error code. */
extern int conduit_tools_rwlock_init(void *lock);
extern int conduit_tools_rwlock_destroy(void *lock);
extern int conduit_tools_rwlock_rdlock(void *lock);
extern int conduit_tools_rwlock_wrlock(void *lock);
extern int conduit_tools_rwlock_tryrdlock(void *lock);
extern int conduit_tools_rwlock_trywrlock(void *lock);
extern int conduit_tools_rwlock_unlock(void *lock);
/* Return and record how the calling thread holds a lock: 0 means not at all, 1 as a reader, and
 * 2 as the writer. Only debug builds call these functions. */
extern int conduit_tools_rwlock_holds(const void *lock);
extern void conduit_tools_rwlock_note(const void *lock, int holds);

GASNETT_END_EXTERNC

/* ---- Mutexes ---- */
#if CONDUIT_TRUE_LOCKS && CONDUIT_TOOLS_DEBUG
#define CONDUIT_MUTEX_NOTE(p, held) \
    __atomic_store_n(&(p)->conduit_holder, (held) ? (uintptr_t)pthread_self() : (uintptr_t)0, __ATOMIC_RELAXED)
#define CONDUIT_MUTEX_IS_MINE(p) (__atomic_load_n(&(p)->conduit_holder, __ATOMIC_RELAXED) == (uintptr_t)pthread_self())
#define CONDUIT_MUTEX_IS_HELD(p) (__atomic_load_n(&(p)->conduit_holder, __ATOMIC_RELAXED) != 0)
#elif CONDUIT_TOOLS_DEBUG
#define CONDUIT_MUTEX_NOTE(p, held) ((p)->conduit_held = (held))
#define CONDUIT_MUTEX_IS_MINE(p) ((p)->conduit_held != 0)
#define CONDUIT_MUTEX_IS_HELD(p) CONDUIT_MUTEX_IS_MINE(p)
#else
#define CONDUIT_MUTEX_NOTE(p, held) ((void)(p))
#endif

CONDUIT_INLINE void conduit_mutex_init(gasnett_mutex_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_mutex_init(&p->conduit_mutex, NULL), "gasnett_mutex_init");
#endif
    CONDUIT_MUTEX_NOTE(p, 0);
}
CONDUIT_INLINE void conduit_mutex_destroy(gasnett_mutex_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(!CONDUIT_MUTEX_IS_HELD(p), "gasnett_mutex_destroy of a held mutex");
    (void)p;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_mutex_destroy(&p->conduit_mutex), "gasnett_mutex_destroy");
#endif
}
CONDUIT_INLINE int gasnett_mutex_destroy_ignoreerr(gasnett_mutex_t *p) {
#if CONDUIT_TRUE_LOCKS
    return pthread_mutex_destroy(&p->conduit_mutex);
#else
    (void)p;
    return 0;
#endif
}
CONDUIT_INLINE void conduit_mutex_lock(gasnett_mutex_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(!CONDUIT_MUTEX_IS_MINE(p), "gasnett_mutex_lock of a mutex that the calling thread holds");
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_mutex_lock(&p->conduit_mutex), "gasnett_mutex_lock");
#endif
    CONDUIT_MUTEX_NOTE(p, 1);
}
CONDUIT_INLINE int conduit_mutex_trylock(gasnett_mutex_t *p, CONDUIT_PLACE) {
    int result = 0;
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(!CONDUIT_MUTEX_IS_MINE(p), "gasnett_mutex_trylock of a mutex that the calling thread holds");
#if CONDUIT_TRUE_LOCKS
    result = pthread_mutex_trylock(&p->conduit_mutex);
#endif
    if (result == 0) CONDUIT_MUTEX_NOTE(p, 1);
    return result;
}
CONDUIT_INLINE void conduit_mutex_unlock(gasnett_mutex_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_MUTEX_IS_MINE(p), "gasnett_mutex_unlock of a mutex that the calling thread does not hold");
    CONDUIT_MUTEX_NOTE(p, 0);
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_mutex_unlock(&p->conduit_mutex), "gasnett_mutex_unlock");
#endif
}
CONDUIT_INLINE void conduit_mutex_assert(gasnett_mutex_t *p, int held, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_MUTEX_IS_MINE(p) || !held, "gasnett_mutex_assertlocked: the calling thread does not hold it");
    CONDUIT_LOCK_CHECK(!CONDUIT_MUTEX_IS_MINE(p) || held, "gasnett_mutex_assertunlocked: the calling thread holds it");
    (void)p, (void)held;
}

#define gasnett_mutex_init(p) conduit_mutex_init((p), CONDUIT_HERE)
#define gasnett_mutex_destroy(p) conduit_mutex_destroy((p), CONDUIT_HERE)
#define gasnett_mutex_lock(p) conduit_mutex_lock((p), CONDUIT_HERE)
#define gasnett_mutex_trylock(p) conduit_mutex_trylock((p), CONDUIT_HERE)
#define gasnett_mutex_unlock(p) conduit_mutex_unlock((p), CONDUIT_HERE)
#define gasnett_mutex_assertlocked(p) conduit_mutex_assert((p), 1, CONDUIT_HERE)
#define gasnett_mutex_assertunlocked(p) conduit_mutex_assert((p), 0, CONDUIT_HERE)

/* ---- Condition variables ---- */
CONDUIT_INLINE void conduit_cond_init(gasnett_cond_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_cond_init(&p->conduit_condition, NULL), "gasnett_cond_init");
#else
    p->conduit_unused = 0;
#endif
}
CONDUIT_INLINE void conduit_cond_destroy(gasnett_cond_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    (void)p;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_cond_destroy(&p->conduit_condition), "gasnett_cond_destroy");
#endif
}
CONDUIT_INLINE void conduit_cond_signal(gasnett_cond_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    (void)p;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_cond_signal(&p->conduit_condition), "gasnett_cond_signal");
#endif
}
CONDUIT_INLINE void conduit_cond_broadcast(gasnett_cond_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    (void)p;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(pthread_cond_broadcast(&p->conduit_condition), "gasnett_cond_broadcast");
#endif
}
CONDUIT_INLINE void conduit_cond_wait(gasnett_cond_t *p, gasnett_mutex_t *mutex, CONDUIT_PLACE) {
#if CONDUIT_TRUE_LOCKS
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_MUTEX_IS_MINE(mutex), "gasnett_cond_wait with a mutex that the calling thread does not hold");
    CONDUIT_MUTEX_NOTE(mutex, 0);
    CONDUIT_LOCK_RESULT(pthread_cond_wait(&p->conduit_condition, &mutex->conduit_mutex), "gasnett_cond_wait");
    CONDUIT_MUTEX_NOTE(mutex, 1);
#else
    (void)p, (void)mutex;
    conduit_tools_fatal(CONDUIT_SAME_PLACE, "gasnett_cond_wait with only one thread would never return");
#endif
}

#define gasnett_cond_init(p) conduit_cond_init((p), CONDUIT_HERE)
#define gasnett_cond_destroy(p) conduit_cond_destroy((p), CONDUIT_HERE)
#define gasnett_cond_signal(p) conduit_cond_signal((p), CONDUIT_HERE)
#define gasnett_cond_broadcast(p) conduit_cond_broadcast((p), CONDUIT_HERE)
#define gasnett_cond_wait(p, mutex) conduit_cond_wait((p), (mutex), CONDUIT_HERE)

/* ---- Reader/writer locks ---- */
#if CONDUIT_TRUE_LOCKS && CONDUIT_TOOLS_DEBUG
#define CONDUIT_RWLOCK_NOTE(p, holds) conduit_tools_rwlock_note((p), (holds))
#define CONDUIT_RWLOCK_HOLDS(p) conduit_tools_rwlock_holds(p)
#elif CONDUIT_TOOLS_DEBUG
#define CONDUIT_RWLOCK_NOTE(p, holds) ((p)->conduit_held = (holds))
#define CONDUIT_RWLOCK_HOLDS(p) ((p)->conduit_held)
#else
#define CONDUIT_RWLOCK_NOTE(p, holds) ((void)(p))
#endif

CONDUIT_INLINE void conduit_rwlock_init(gasnett_rwlock_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(conduit_tools_rwlock_init(p), "gasnett_rwlock_init");
#else
    p->conduit_held = 0;
#endif
}
CONDUIT_INLINE void conduit_rwlock_destroy(gasnett_rwlock_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_RWLOCK_HOLDS(p) == 0, "gasnett_rwlock_destroy of a held lock");
    (void)p;
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(conduit_tools_rwlock_destroy(p), "gasnett_rwlock_destroy");
#endif
}
CONDUIT_INLINE void conduit_rwlock_lock(gasnett_rwlock_t *p, int how, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_RWLOCK_HOLDS(p) == 0, "lock of a gasnett_rwlock_t that the calling thread holds");
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(how == 2 ? conduit_tools_rwlock_wrlock(p) : conduit_tools_rwlock_rdlock(p), "lock of a gasnett_rwlock_t");
#endif
    CONDUIT_RWLOCK_NOTE(p, how);
    (void)how;
}
CONDUIT_INLINE int conduit_rwlock_trylock(gasnett_rwlock_t *p, int how, CONDUIT_PLACE) {
    int result = 0;
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_RWLOCK_HOLDS(p) == 0, "lock of a gasnett_rwlock_t that the calling thread holds");
#if CONDUIT_TRUE_LOCKS
    result = how == 2 ? conduit_tools_rwlock_trywrlock(p) : conduit_tools_rwlock_tryrdlock(p);
#endif
    if (result == 0) CONDUIT_RWLOCK_NOTE(p, how);
    (void)how;
    return result;
}
CONDUIT_INLINE void conduit_rwlock_unlock(gasnett_rwlock_t *p, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_RWLOCK_HOLDS(p) != 0, "gasnett_rwlock_unlock of a lock that the calling thread does not hold");
    CONDUIT_RWLOCK_NOTE(p, 0);
#if CONDUIT_TRUE_LOCKS
    CONDUIT_LOCK_RESULT(conduit_tools_rwlock_unlock(p), "gasnett_rwlock_unlock");
#endif
}
CONDUIT_INLINE void conduit_rwlock_assert(gasnett_rwlock_t *p, int first, int second, CONDUIT_PLACE) {
    CONDUIT_PLACE_UNUSED;
    CONDUIT_LOCK_CHECK(CONDUIT_RWLOCK_HOLDS(p) == first || CONDUIT_RWLOCK_HOLDS(p) == second,
                       "a gasnett_rwlock_t is not held as asserted");
    (void)p, (void)first, (void)second;
}

#define gasnett_rwlock_init(p) conduit_rwlock_init((p), CONDUIT_HERE)
#define gasnett_rwlock_destroy(p) conduit_rwlock_destroy((p), CONDUIT_HERE)
#define gasnett_rwlock_rdlock(p) conduit_rwlock_lock((p), 1, CONDUIT_HERE)
#define gasnett_rwlock_wrlock(p) conduit_rwlock_lock((p), 2, CONDUIT_HERE)
#define gasnett_rwlock_tryrdlock(p) conduit_rwlock_trylock((p), 1, CONDUIT_HERE)
#define gasnett_rwlock_trywrlock(p) conduit_rwlock_trylock((p), 2, CONDUIT_HERE)
#define gasnett_rwlock_unlock(p) conduit_rwlock_unlock((p), CONDUIT_HERE)
#define gasnett_rwlock_assertrdlocked(p) conduit_rwlock_assert((p), 1, 1, CONDUIT_HERE)
#define gasnett_rwlock_assertwrlocked(p) conduit_rwlock_assert((p), 2, 2, CONDUIT_HERE)
#define gasnett_rwlock_assertlocked(p) conduit_rwlock_assert((p), 1, 2, CONDUIT_HERE)
#define gasnett_rwlock_assertunlocked(p) conduit_rwlock_assert((p), 0, 0, CONDUIT_HERE)

#endif
