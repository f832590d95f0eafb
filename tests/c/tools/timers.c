/* Ticks must advance and must agree with the system's clock. */
#include <gasnet_tools.h>

#include <errno.h>

#include "programs.h"

int test_timers(int argc, char **argv) {
    const uint64_t sleep = 30 * 1000 * 1000;
    uint64_t before_us, after_us;
    gasnett_tick_t first, last, before, after;
    int i;
    (void)argc, (void)argv;

    last = gasnett_ticks_now();
    for (i = 0; i < 100000; ++i) {
        gasnett_tick_t now = gasnett_ticks_now();
        CHECK(now >= last);
        last = now;
    }
    CHECK(last > GASNETT_TICK_MIN && last < GASNETT_TICK_MAX);
    CHECK(gasnett_tick_granularityus() > 0 && gasnett_tick_overheadus() > 0);

    /* A sleep takes at least its time. The clock is read inside and outside of the ticks, so the
     * time in ticks must lie between the two times of the clock, even with interruptions. It may be
     * off by one part in a thousand, because the clock may be adjusted meanwhile. */
    before = gasnett_ticks_now();
    before_us = gasnett_gettimeofday_us();
    first = gasnett_ticks_now();
    CHECK(gasnett_nsleep(sleep) == 0);
    last = gasnett_ticks_now();
    after_us = gasnett_gettimeofday_us();
    after = gasnett_ticks_now();
    CHECK(gasnett_ticks_to_ns(last - first) >= sleep - sleep / 1000);
    CHECK(gasnett_ticks_to_us(last - first) <= (after_us - before_us) + (after_us - before_us) / 1000 + 1);
    CHECK(gasnett_ticks_to_us(after - before) + (after_us - before_us) / 1000 + 1 >= after_us - before_us);
    CHECK(gasnett_nsleep(0) == 0);

    /* The conversion must have no jumps and no overflow. */
    CHECK(gasnett_ticks_to_ns(0) == 0);
    for (i = 0; i < 60; ++i) {
        const gasnett_tick_t ticks = (gasnett_tick_t)1 << i;
        const uint64_t once = gasnett_ticks_to_ns(ticks), twice = gasnett_ticks_to_ns(2 * ticks);
        CHECK(twice >= 2 * once && twice <= 2 * once + 1);
        CHECK(gasnett_ticks_to_us(ticks) == once / 1000);
    }
#ifdef GASNETT_USING_GETTIMEOFDAY
#error "a better clock is available"
#endif
    return 0;
}
