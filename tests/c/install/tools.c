/* The portable tools alone: a function in the library, a clock whose data is in the library, and an
 * inline atomic. */
#include <gasnet_tools.h>

int main(void) {
  gasnett_atomic_t counter = gasnett_atomic_init(41);
  const gasnett_tick_t begin = gasnett_ticks_now();
  gasnett_nsleep(1000000);
  gasnett_atomic_increment(&counter, 0);
  if (gasnett_atomic_read(&counter, 0) != 42) return 1;
  /* The bound is a little less than the sleep, because the two clocks may differ. */
  if (gasnett_ticks_to_ns(gasnett_ticks_now() - begin) < 900000) return 2;
  if (gasnett_parse_int("64", 1) != 64) return 3;
  return 0;
}
