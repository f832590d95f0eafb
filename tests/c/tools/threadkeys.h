/* A key that two files share. */
#ifndef CONDUIT_TEST_THREADKEYS_H
#define CONDUIT_TEST_THREADKEYS_H

#include <gasnet_tools.h>

GASNETT_THREADKEY_DECLARE(shared_key);

void set_from_elsewhere(void *value);

#endif
