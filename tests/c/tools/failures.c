/* Ends a process, writes backtraces, or waits for a debugger. The argument selects which. */
#include <gasnet_tools.h>

#include <linux/prctl.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "programs.h"

static volatile int frozen;
extern int conduit_tools_frozen;

GASNETT_BEGIN_EXTERNC
static void at_exit(void) { printf("atexit\n"); }

/* The client's function for writing backtraces, and its registration. */
static int write_backtrace(int fd) {
    return write(fd, "client's backtrace\n", 19) == 19 ? 0 : 1;
}
static int write_other(int fd) { return write(fd, "replaced\n", 9) == 9 ? 0 : 1; }

/* Replaces the system's function. It prints which processes may trace this one. */
int prctl(int option, ...);
int prctl(int option, ...) {
    va_list arguments;
    unsigned long process;
    char line[64];
    if (option != PR_SET_PTRACER) return 0;
    va_start(arguments, option);
    process = va_arg(arguments, unsigned long);
    va_end(arguments);
    sprintf(line, "debugged by %s\n", process == (unsigned long)getpid() ? "children" : process ? "others" : "nobody");
    return write(STDOUT_FILENO, line, strlen(line)) < 0 ? -1 : 0;
}

/* Ends the wait for a debugger, as a debugger would. */
static void unfreeze(int signal_number) {
    (void)signal_number;
    if (frozen) frozen = 0;
    else if (conduit_tools_frozen) conduit_tools_frozen = 0;
    else alarm(1);
}
GASNETT_END_EXTERNC
gasnett_backtrace_type_t gasnett_backtrace_user = { "CLIENT", &write_backtrace, 1 };

static void test_location(void) {
    char expected[256];
    char *location;
    sprintf(expected, "test_location() at %s:%d", __FILE__, __LINE__), location = gasnett_current_loc;
    CHECK(strcmp(location, expected) == 0);
    free(location);
    CHECK(strcmp(GASNETT_CURRENT_FUNCTION, "test_location") == 0);
}

int test_failures(int argc, char **argv) {
    const char *const what = argc > 1 ? argv[1] : "nothing";
#define IS(name) (strcmp(what, #name) == 0)
    test_location();
    gasnett_backtrace_init(argv[0]);
    atexit(&at_exit);

    if (IS(fatal)) gasnett_fatalerror("number %d", 5);
    if (IS(fatal_nopos)) gasnett_fatalerror_nopos("number %d of %s", 6, "seven");
    if (IS(fatal_long)) gasnett_fatalerror("%*d", 10000, 1);
    if (IS(fatal_replaced)) {
        gasnett_print_backtrace_ifenabled = &write_other;
        gasnett_fatalerror("with another backtrace");
    }
    if (IS(kill)) gasnett_killmyprocess(7);
    if (IS(unreachable)) gasnett_unreachable();
    if (IS(assume)) gasnett_assume(argc < 0);
    if (IS(print)) return gasnett_print_backtrace(STDOUT_FILENO);
    if (IS(print_if_enabled)) return gasnett_print_backtrace_ifenabled(STDOUT_FILENO);
    if (IS(signal)) {
        raise(SIGUSR1);
        printf("went on\n");
    }
    if (IS(freeze)) {
        gasnett_reghandler(SIGALRM, &unfreeze);
        alarm(1);
        gasnett_freezeForDebuggerNow(&frozen, "frozen");
        printf("went on\n");
    }
    if (IS(freeze_error)) {
        gasnett_reghandler(SIGALRM, &unfreeze);
        alarm(1);
        gasnett_freezeForDebuggerErr();
        printf("went on\n");
    }
    return 0;
}
