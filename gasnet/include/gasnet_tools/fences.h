/* Memory fences between the threads of a process.
 *
 * They order the processor's normal loads and stores like C11's fences: wmb is a release fence,
 * rmb an acquire fence, mb is sequentially consistent. On x86 the first two only restrain the
 * compiler. */
#ifndef CONDUIT_TOOLS_FENCES_H
#define CONDUIT_TOOLS_FENCES_H

#include "basics.h"

/* Only keeps the compiler from moving memory accesses across this point. */
#define gasnett_compiler_fence() __asm__ __volatile__("" : : : "memory")

#define gasnett_local_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define gasnett_local_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define gasnett_local_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* The weak forms do nothing in single-threaded programs. */
#if defined(GASNETT_THREAD_SAFE)
#define gasnett_weak_wmb() gasnett_local_wmb()
#define gasnett_weak_rmb() gasnett_local_rmb()
#define gasnett_weak_mb() gasnett_local_mb()
#else
#define gasnett_weak_wmb() ((void)0)
#define gasnett_weak_rmb() ((void)0)
#define gasnett_weak_mb() ((void)0)
#endif

/* The processor's hint for spin loops. It is also a compiler fence. */
#if defined(PLATFORM_ARCH_X86_64) || defined(PLATFORM_ARCH_X86)
#define gasnett_spinloop_hint() __asm__ __volatile__("pause" : : : "memory")
#elif defined(PLATFORM_ARCH_AARCH64)
#define gasnett_spinloop_hint() __asm__ __volatile__("isb" : : : "memory")
#else
#define gasnett_spinloop_hint() gasnett_compiler_fence()
#endif

#endif
