/* Uses each annotation in a valid place, and checks those that have an effect. */
#include <gasnet_tools.h>

#include <stdarg.h>

#include "programs.h"

GASNETT_IDENT(conduit_test_ident, "$ConduitTest: kept $");

GASNETT_INLINE(square)
int square(int x) { return x * x; }

GASNETT_NEVER_INLINE(cube,
static int cube(int x)) { return x * x * x; }

GASNETT_FORMAT_PRINTF(format_into, 2, 3,
static int format_into(char *buffer, const char *format, ...)) {
    int length;
    va_list arguments;
    va_start(arguments, format);
    length = vsprintf(buffer, format, arguments);
    va_end(arguments);
    return length;
}
GASNETT_FORMAT_PRINTF_FUNCPTR(format_pointer, 2, 3,
static int (*format_pointer)(char *buffer, const char *format, ...)) = &format_into;

void never_returns(void) GASNETT_NORETURN;
GASNETT_NORETURNP(never_returns)
void never_returns(void) { exit(3); }

static void *new_memory(size_t size) GASNETT_MALLOC;
GASNETT_MALLOCP(new_memory)
static void *new_memory(size_t size) { return malloc(size); }

GASNETT_PURE
static int first_of(const int *numbers);
GASNETT_PUREP(first_of)
static int first_of(const int *numbers) { return numbers[0]; }

GASNETT_CONST
static int twice(int x);
GASNETT_CONSTP(twice)
static int twice(int x) { return 2 * x; }

GASNETT_HOT
static int hot(void);
static int hot(void) { return 1; }

GASNETT_COLD
static int cold(void);
static int cold(void) { return 2; }

GASNETT_DEPRECATED
int deprecated(void);
int deprecated(void) { return 3; }

GASNETT_WARN_UNUSED_RESULT
static int must_be_looked_at(void);
static int must_be_looked_at(void) { return 4; }

/* Without the annotation, the compiler would warn about this function and leave it out. */
GASNETT_USED
static int used_by_nobody(void);
static int used_by_nobody(void) { return 5; }

static void add(int *GASNETT_RESTRICT to, const int *GASNETT_RESTRICT from) { *to += *from; }

static int names_length(int day) {
    int length = 0;
    switch (day) {
    case 2: length += 10; GASNETT_FALLTHROUGH
    case 1: length += 1; break;
    default: length = -1;
    }
    return length;
}

static int sign(int x) {
    if (x > 0) return 1;
    if (x <= 0) return 0;
    gasnett_unreachable();
}

int test_annotations(int argc, char **argv) {
    char text[16];
    int numbers[2] = { 7, 8 };
    int a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    void *memory = new_memory(10);
    (void)argv;

    CHECK(memory != NULL);
    free(memory);
    if (argc > 100) never_returns();
    CHECK(square(3) == 9 && cube(3) == 27);
    CHECK(format_into(text, "%d", 12) == 2 && format_pointer(text, "%s", "abc") == 3);
    CHECK(first_of(numbers) == 7 && twice(4) == 8 && hot() + cold() == 3 && must_be_looked_at() == 4);
    add(&numbers[0], &numbers[1]);
    CHECK(numbers[0] == 15);
#if GASNETT_USE_GCC_ATTRIBUTE_FALLTHROUGH && !defined(__cplusplus)
    CHECK(strstr(_STRINGIFY(GASNETT_FALLTHROUGH), "__fallthrough__") != NULL);
#endif
    CHECK(names_length(2) == 11 && names_length(1) == 1 && names_length(0) == -1);
    CHECK(sign(5) == 1 && sign(-5) == 0);

    /* Any value other than zero counts as true, including one whose low bits are zero. */
    CHECK(GASNETT_PREDICT_TRUE(UINT64_C(1) << 40) && GASNETT_PREDICT_FALSE(UINT64_C(1) << 40));
    CHECK(!GASNETT_PREDICT_TRUE(0) && !GASNETT_PREDICT_FALSE(0));
    if_pf (argc < 0) CHECK(0);
    else a = 1;
    if_pt (argc > 0) b = 1;
    else CHECK(0);
    CHECK(a == 1 && b == 1);

#if GASNETT_USE_BUILTIN_CONSTANT_P
    CHECK(gasnett_constant_p(4));
#endif
    CHECK(!gasnett_constant_p(*(volatile int *)&argc));
    gasnett_assume(argc > 0);

    /* Each argument must be evaluated once. */
    a = b = 0;
    GASNETT_UNUSED_ARGS1(++a);
    GASNETT_UNUSED_ARGS2(++a, ++b);
    GASNETT_UNUSED_ARGS3(++a, ++b, ++c);
    GASNETT_UNUSED_ARGS4(++a, ++b, ++c, ++d);
    GASNETT_UNUSED_ARGS5(++a, ++b, ++c, ++d, ++e);
    GASNETT_UNUSED_ARGS6(++a, ++b, ++c, ++d, ++e, ++f);
    GASNETT_UNUSED_ARGS7(++a, ++b, ++c, ++d, ++e, ++f, ++g);
    GASNETT_UNUSED_ARGS8(++a, ++b, ++c, ++d, ++e, ++f, ++g, ++h);
    CHECK(a == 8 && b == 7 && c == 6 && d == 5 && e == 4 && f == 3 && g == 2 && h == 1);
    CHECK((GASNETT_UNUSED_ARGS2(argc, argv), 5) == 5);
    return 0;
}
