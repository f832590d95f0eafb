/* Checks of the test programs. A check that fails prints its place and ends the program with code
 * 1. */
#ifndef CONDUIT_TEST_CHECK_H
#define CONDUIT_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), fflush(stdout), exit(1)))

#endif
