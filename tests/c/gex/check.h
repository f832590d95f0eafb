/* Checks that end the job if they fail. They work with both interfaces. A program must include
 * gasnetex.h or gasnet.h before this header. */
#ifndef GEX_CHECK_H
#define GEX_CHECK_H

#include <stdio.h>
#include <string.h>

/* For definitions in these headers, because not every program uses all of them. */
#define MAYBE_UNUSED __attribute__((__unused__))

/* The exit code of a job in which a check has failed. If the library detects bad input, it ends the
 * job with code 1. */
#define CHECK_FAILED 3

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

/* Checks that two numbers or pointers are equal, and prints both if they differ. */
#define CHECK_EQ(left, right) \
  check_equal(__FILE__, __LINE__, #left " == " #right, (uint64_t)(left), (uint64_t)(right))

/* The rank that is printed with failures. It is -1 before the job has been joined. */
static int check_rank = -1;

MAYBE_UNUSED static void check_failed(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: rank %d: check failed: %s\n", file, line, check_rank, what);
  fflush(stderr);
  gasnet_exit(CHECK_FAILED);
}

MAYBE_UNUSED static void check_equal(const char *file, int line, const char *what, uint64_t left, uint64_t right) {
  if (left == right) return;
  fprintf(stderr, "%s:%d: rank %d: check failed: %s: %lld (%#llx), %lld (%#llx)\n", file, line, check_rank, what,
          (long long)left, (unsigned long long)left, (long long)right, (unsigned long long)right);
  fflush(stderr);
  gasnet_exit(CHECK_FAILED);
}

/* Returns the byte that a message has at a place. */
MAYBE_UNUSED static unsigned char pattern(size_t place, unsigned int message) {
  return (unsigned char)(place * 7 + (place >> 8) * 13 + message * 101 + 1);
}

MAYBE_UNUSED static void fill(void *at, size_t bytes, unsigned int message) {
  unsigned char *const to = (unsigned char *)at;
  size_t i;
  for (i = 0; i < bytes; ++i) to[i] = pattern(i, message);
}

MAYBE_UNUSED static void check_filled(const void *at, size_t bytes, unsigned int message) {
  const unsigned char *const from = (const unsigned char *)at;
  size_t i;
  for (i = 0; i < bytes; ++i)
    if (from[i] != pattern(i, message)) {
      fprintf(stderr, "rank %d: byte %lu of %lu of message %u\n", check_rank, (unsigned long)i, (unsigned long)bytes,
              message);
      CHECK(from[i] == pattern(i, message));
    }
}

#endif
