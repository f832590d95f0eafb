/* Lists that depend on the number of arguments of an active message, for each number from 0 to 16.
 * */
#ifndef GEX_ARGS_H
#define GEX_ARGS_H

#include "check.h"

#define MOST_ARGS 16
#define COUNTS (MOST_ARGS + 1)

/* Returns the value of argument `place` of any message. The first four are extremes. */
MAYBE_UNUSED static gex_AM_Arg_t word(unsigned int place) {
  const gex_AM_Arg_t extremes[] = {INT32_MIN, -1, INT32_MAX, 0};
  return place < 4 ? extremes[place] : (gex_AM_Arg_t)(0x01010101 * place);
}

/* How many times each argument of a call was evaluated: outside of handlers, and in a handler,
 * which may run within the call. */
static int evaluated[2][MOST_ARGS];
static int in_handler;

MAYBE_UNUSED static gex_AM_Arg_t argument(unsigned int place) {
  evaluated[in_handler][place]++;
  return word(place);
}

/* Checks that each of a call's arguments was evaluated once. */
MAYBE_UNUSED static void check_evaluated(int count) {
  int i;
  for (i = 0; i < MOST_ARGS; ++i) {
    CHECK_EQ(evaluated[in_handler][i], i < count);
    evaluated[in_handler][i] = 0;
  }
}

#define EACH_COUNT(DO) \
  DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) \
  DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16)

/* The message's arguments, which follow the other arguments of a call. */
#define ARGUMENTS_0
#define ARGUMENTS_1 , argument(0)
#define ARGUMENTS_2 ARGUMENTS_1, argument(1)
#define ARGUMENTS_3 ARGUMENTS_2, argument(2)
#define ARGUMENTS_4 ARGUMENTS_3, argument(3)
#define ARGUMENTS_5 ARGUMENTS_4, argument(4)
#define ARGUMENTS_6 ARGUMENTS_5, argument(5)
#define ARGUMENTS_7 ARGUMENTS_6, argument(6)
#define ARGUMENTS_8 ARGUMENTS_7, argument(7)
#define ARGUMENTS_9 ARGUMENTS_8, argument(8)
#define ARGUMENTS_10 ARGUMENTS_9, argument(9)
#define ARGUMENTS_11 ARGUMENTS_10, argument(10)
#define ARGUMENTS_12 ARGUMENTS_11, argument(11)
#define ARGUMENTS_13 ARGUMENTS_12, argument(12)
#define ARGUMENTS_14 ARGUMENTS_13, argument(13)
#define ARGUMENTS_15 ARGUMENTS_14, argument(14)
#define ARGUMENTS_16 ARGUMENTS_15, argument(15)

/* The parameters by which a handler gets the arguments. */
#define PARAMETERS_0
#define PARAMETERS_1 , gex_AM_Arg_t a0
#define PARAMETERS_2 PARAMETERS_1, gex_AM_Arg_t a1
#define PARAMETERS_3 PARAMETERS_2, gex_AM_Arg_t a2
#define PARAMETERS_4 PARAMETERS_3, gex_AM_Arg_t a3
#define PARAMETERS_5 PARAMETERS_4, gex_AM_Arg_t a4
#define PARAMETERS_6 PARAMETERS_5, gex_AM_Arg_t a5
#define PARAMETERS_7 PARAMETERS_6, gex_AM_Arg_t a6
#define PARAMETERS_8 PARAMETERS_7, gex_AM_Arg_t a7
#define PARAMETERS_9 PARAMETERS_8, gex_AM_Arg_t a8
#define PARAMETERS_10 PARAMETERS_9, gex_AM_Arg_t a9
#define PARAMETERS_11 PARAMETERS_10, gex_AM_Arg_t a10
#define PARAMETERS_12 PARAMETERS_11, gex_AM_Arg_t a11
#define PARAMETERS_13 PARAMETERS_12, gex_AM_Arg_t a12
#define PARAMETERS_14 PARAMETERS_13, gex_AM_Arg_t a13
#define PARAMETERS_15 PARAMETERS_14, gex_AM_Arg_t a14
#define PARAMETERS_16 PARAMETERS_15, gex_AM_Arg_t a15

/* The checks of the arguments in a handler. */
#define CHECK_WORDS_0
#define CHECK_WORDS_1 CHECK_EQ(a0, word(0));
#define CHECK_WORDS_2 CHECK_WORDS_1 CHECK_EQ(a1, word(1));
#define CHECK_WORDS_3 CHECK_WORDS_2 CHECK_EQ(a2, word(2));
#define CHECK_WORDS_4 CHECK_WORDS_3 CHECK_EQ(a3, word(3));
#define CHECK_WORDS_5 CHECK_WORDS_4 CHECK_EQ(a4, word(4));
#define CHECK_WORDS_6 CHECK_WORDS_5 CHECK_EQ(a5, word(5));
#define CHECK_WORDS_7 CHECK_WORDS_6 CHECK_EQ(a6, word(6));
#define CHECK_WORDS_8 CHECK_WORDS_7 CHECK_EQ(a7, word(7));
#define CHECK_WORDS_9 CHECK_WORDS_8 CHECK_EQ(a8, word(8));
#define CHECK_WORDS_10 CHECK_WORDS_9 CHECK_EQ(a9, word(9));
#define CHECK_WORDS_11 CHECK_WORDS_10 CHECK_EQ(a10, word(10));
#define CHECK_WORDS_12 CHECK_WORDS_11 CHECK_EQ(a11, word(11));
#define CHECK_WORDS_13 CHECK_WORDS_12 CHECK_EQ(a12, word(12));
#define CHECK_WORDS_14 CHECK_WORDS_13 CHECK_EQ(a13, word(13));
#define CHECK_WORDS_15 CHECK_WORDS_14 CHECK_EQ(a14, word(14));
#define CHECK_WORDS_16 CHECK_WORDS_15 CHECK_EQ(a15, word(15));

#endif
