/* The second file that uses the shared key. */
#include "threadkeys.h"

void set_from_elsewhere(void *value) { gasnett_threadkey_set(shared_key, value); }
