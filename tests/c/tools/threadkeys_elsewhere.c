/* The other file. */
#include "threadkeys.h"

void set_from_elsewhere(void *value) { gasnett_threadkey_set(shared_key, value); }
