/* Timers: ticks of the processor's own counter if it counts evenly, otherwise of the system's
 * clock.
 *
 * The library determines the source at the first tick; from then on, a tick is one load, one
 * branch and a counter read. It determines the length of a tick at the first conversion. */
#ifndef CONDUIT_TOOLS_TIMERS_H
#define CONDUIT_TOOLS_TIMERS_H

#include "annotations.h"

typedef uint64_t gasnett_tick_t;
#define GASNETT_TICK_MIN ((gasnett_tick_t)0)
#define GASNETT_TICK_MAX ((gasnett_tick_t)UINT64_MAX)

GASNETT_BEGIN_EXTERNC

/* Whether ticks come from the processor's counter: 0 means not known yet, 1 yes, and 2 no. */
extern uint32_t conduit_tools_tick_source;
/* The length of a tick in units of 2^-53 nanoseconds, which is below 2^63, or 0 while the length
 * is unknown. */
extern uint64_t conduit_tools_tick_scale;

/* Returns the current tick, by a call of the library. Used if ticks do not come from the counter
 * or their source is unknown. */
extern uint64_t conduit_tools_ticks_slowly(void);
/* Determines and returns the length of a tick. The first call takes up to about 20 ms. */
extern uint64_t conduit_tools_tick_calibrate(void);

/* Returns microseconds since the epoch, by the system's clock. */
extern uint64_t gasnett_gettimeofday_us(void);
/* Return the smallest difference between two ticks, and the time that reading a tick takes, in
 * microseconds. Each is measured once. */
extern double gasnett_tick_granularityus(void);
extern double gasnett_tick_overheadus(void);
/* Sleeps for at least this time. Returns nonzero with errno EINTR if a signal has interrupted
 * it. */
extern int gasnett_nsleep(uint64_t ns_delay);

GASNETT_END_EXTERNC

CONDUIT_INLINE gasnett_tick_t gasnett_ticks_now(void) {
#if defined(PLATFORM_ARCH_X86_64) || defined(PLATFORM_ARCH_X86)
    if (GASNETT_PREDICT_TRUE(conduit_tools_tick_source == 1)) {
        return (gasnett_tick_t)__builtin_ia32_rdtsc();
    }
#elif defined(PLATFORM_ARCH_AARCH64)
    if (GASNETT_PREDICT_TRUE(conduit_tools_tick_source == 1)) {
        uint64_t ticks;
        __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return conduit_tools_ticks_slowly();
}

CONDUIT_INLINE uint64_t gasnett_ticks_to_ns(gasnett_tick_t ticks) {
    uint64_t scale = __atomic_load_n(&conduit_tools_tick_scale, __ATOMIC_RELAXED);
    if (GASNETT_PREDICT_FALSE(scale == 0)) scale = conduit_tools_tick_calibrate();
#if defined(__SIZEOF_INT128__)
    return (uint64_t)(((__extension__(unsigned __int128)ticks) * scale) >> 53);
#else
    {
        /* The 64 by 64 bit product in four parts; only the carry of the lowest is needed. */
        uint64_t a = ticks >> 32, b = ticks & 0xFFFFFFFFU, c = scale >> 32, d = scale & 0xFFFFFFFFU;
        uint64_t low = b * d, middle = a * d + (low >> 32), other = b * c + (middle & 0xFFFFFFFFU);
        uint64_t high = a * c + (middle >> 32) + (other >> 32);
        return (high << 11) | ((other & 0xFFFFFFFFU) >> 21);
    }
#endif
}

CONDUIT_INLINE uint64_t gasnett_ticks_to_us(gasnett_tick_t ticks) {
    return gasnett_ticks_to_ns(ticks) / 1000;
}

#endif
