/* Settings and numbers. The variables are set by this program, or, with the argument "set from
 * outside", by the test that runs it. */
#include <gasnet_tools.h>

#include "programs.h"

static void test_numbers(void) {
    char text[32];
    CHECK(strcmp(gasnett_format_number(1536, text, sizeof(text), 1), "1536 B") == 0);
    CHECK(strcmp(gasnett_format_number(INT64_C(3) << 30, text, sizeof(text), 1), "3 GB") == 0);
    CHECK(strcmp(gasnett_format_number(-2048, text, sizeof(text), 0), "-2048") == 0);
    CHECK(gasnett_format_number(123456, text, 4, 0) == text && strcmp(text, "123") == 0);
    CHECK(gasnett_parse_int("1.5MB", 1) == 1536 * 1024);
    CHECK(gasnett_parse_int("4", 1024) == 4096);
    CHECK(gasnett_parse_int("-0x10", 0) == -16);
}

static void test_settings(void) {
    const char *const name = "CONDUIT_TEST_SETTING";
    const char *const standard = "the default";
    gasnett_unsetenv(name);
    CHECK(gasnett_getenv(name) == NULL && getenv(name) == NULL);
    CHECK(gasnett_getenv_withdefault(name, standard) == standard);
    CHECK(gasnett_getenv_withdefault(name, NULL) == NULL);
    CHECK(gasnett_getenv_yesno_withdefault(name, 1) == 1 && gasnett_getenv_yesno_withdefault(name, 0) == 0);
    CHECK(gasnett_getenv_int_withdefault(name, -5, 0) == -5 && gasnett_getenv_int_withdefault(name, 77, 1024) == 77);
    CHECK(gasnett_getenv_dbl_withdefault(name, 2.5) == 2.5);

    gasnett_setenv(name, "3");
    CHECK(strcmp(gasnett_getenv(name), "3") == 0 && strcmp(getenv(name), "3") == 0);
    CHECK(strcmp(gasnett_getenv_withdefault(name, standard), "3") == 0);
    CHECK(gasnett_getenv_int_withdefault(name, 0, 0) == 3 && gasnett_getenv_int_withdefault(name, 0, 1024) == 3072);
    gasnett_setenv(name, "3/8");
    CHECK(gasnett_getenv_dbl_withdefault(name, 0) == 0.375);
    gasnett_setenv(name, "Yes");
    CHECK(gasnett_getenv_yesno_withdefault(name, 0) == 1);
    gasnett_setenv(name, "0");
    CHECK(gasnett_getenv_yesno_withdefault(name, 1) == 0);
    gasnett_setenv(name, "");
    CHECK(gasnett_getenv_int_withdefault(name, 12, 0) == 12);
}

/* Reads a value that can't be parsed. The error must name the variable. */
static void read_nonsense(const char *what) {
    if (strcmp(what, "integer") == 0) gasnett_getenv_int_withdefault("CONDUIT_TEST_OUTSIDE", 0, 0);
    if (strcmp(what, "size") == 0) gasnett_getenv_int_withdefault("CONDUIT_TEST_OUTSIDE", 0, 1);
    if (strcmp(what, "double") == 0) gasnett_getenv_dbl_withdefault("CONDUIT_TEST_OUTSIDE", 0);
    if (strcmp(what, "yesno") == 0) gasnett_getenv_yesno_withdefault("CONDUIT_TEST_OUTSIDE", 0);
    if (strcmp(what, "parse") == 0) gasnett_parse_int("nonsense", 0);
    if (strcmp(what, "null") == 0) gasnett_getenv(NULL);
}

/* Reads variables. With GASNET_VERBOSEENV, each of them must be reported once. */
static void report(void) {
    CHECK(gasnett_verboseenv());
    CHECK(strcmp(gasnett_getenv_withdefault("CONDUIT_TEST_OUTSIDE", NULL), "two words") == 0);
    CHECK(strcmp(gasnett_getenv_withdefault("CONDUIT_TEST_OUTSIDE", NULL), "two words") == 0);
    gasnett_getenv_int_withdefault("CONDUIT_TEST_SIZE", 1 << 20, 1);
    gasnett_envint_display("CONDUIT_TEST_INT", 1 << 20, 0, 0);
    gasnett_envstr_display("CONDUIT_TEST_STR", "text", 1);
    gasnett_envdbl_display("CONDUIT_TEST_DBL", 0.25, 0);
}

int test_environment(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "report") == 0) {
        report();
    } else if (argc > 1) {
        read_nonsense(argv[1]);
    } else {
        CHECK(!gasnett_verboseenv());
        test_numbers();
        test_settings();
    }
    return 0;
}
