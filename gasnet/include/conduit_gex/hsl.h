/* Handler-safe locks: system mutexes in PAR mode, and no-ops in the other modes. */
#ifndef CONDUIT_GEX_HSL_H
#define CONDUIT_GEX_HSL_H

#include <conduit_gex/entries.h>

#if defined(GASNET_PAR)
  #include <errno.h>
  #include <pthread.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GASNET_PAR)

typedef struct {
  pthread_mutex_t mutex;
} gex_HSL_t;

#define GEX_HSL_INITIALIZER {PTHREAD_MUTEX_INITIALIZER}

void conduit_gex_hsl_failed(const char *call, int error) CONDUIT_GEX_NORETURN;

CONDUIT_GEX_INLINE void gex_HSL_Init(gex_HSL_t *lock_) {
  const int error_ = pthread_mutex_init(&lock_->mutex, NULL);
  if (error_) conduit_gex_hsl_failed("gex_HSL_Init", error_);
}

CONDUIT_GEX_INLINE void gex_HSL_Destroy(gex_HSL_t *lock_) {
  const int error_ = pthread_mutex_destroy(&lock_->mutex);
  if (error_) conduit_gex_hsl_failed("gex_HSL_Destroy", error_);
}

CONDUIT_GEX_INLINE void gex_HSL_Lock(gex_HSL_t *lock_) {
  const int error_ = pthread_mutex_lock(&lock_->mutex);
  if (error_) conduit_gex_hsl_failed("gex_HSL_Lock", error_);
}

CONDUIT_GEX_INLINE void gex_HSL_Unlock(gex_HSL_t *lock_) {
  const int error_ = pthread_mutex_unlock(&lock_->mutex);
  if (error_) conduit_gex_hsl_failed("gex_HSL_Unlock", error_);
}

CONDUIT_GEX_INLINE int gex_HSL_Trylock(gex_HSL_t *lock_) {
  const int error_ = pthread_mutex_trylock(&lock_->mutex);
  if (error_ && error_ != EBUSY) conduit_gex_hsl_failed("gex_HSL_Trylock", error_);
  return error_ ? GASNET_ERR_NOT_READY : GASNET_OK;
}

#else

typedef struct {
  char nothing;
} gex_HSL_t;

#define GEX_HSL_INITIALIZER {0}

CONDUIT_GEX_INLINE void gex_HSL_Init(gex_HSL_t *lock_) { (void)lock_; }
CONDUIT_GEX_INLINE void gex_HSL_Destroy(gex_HSL_t *lock_) { (void)lock_; }
CONDUIT_GEX_INLINE void gex_HSL_Lock(gex_HSL_t *lock_) { (void)lock_; }
CONDUIT_GEX_INLINE void gex_HSL_Unlock(gex_HSL_t *lock_) { (void)lock_; }
CONDUIT_GEX_INLINE int gex_HSL_Trylock(gex_HSL_t *lock_) {
  (void)lock_;
  return GASNET_OK;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
