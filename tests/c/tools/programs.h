/* The programs that use the tools. Each is one function, which main() calls by its name. */
#ifndef CONDUIT_TEST_TOOLS_PROGRAMS_H
#define CONDUIT_TEST_TOOLS_PROGRAMS_H

#include "../check.h"

int test_annotations(int argc, char **argv);
int test_atomics(int argc, char **argv);
int test_basics(int argc, char **argv);
int test_bytes(int argc, char **argv);
int test_environment(int argc, char **argv);
int test_failures(int argc, char **argv);
int test_fences(int argc, char **argv);
int test_formats(int argc, char **argv);
int test_locks(int argc, char **argv);
int test_memory(int argc, char **argv);
int test_platform(int argc, char **argv);
int test_system(int argc, char **argv);
int test_threadkeys(int argc, char **argv);
int test_timers(int argc, char **argv);
int test_tracing(int argc, char **argv);

#endif
