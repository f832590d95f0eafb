/* The system, the process, its streams, signals and limits. */
#include <gasnet_tools.h>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "programs.h"

static volatile int handled;
GASNETT_BEGIN_EXTERNC
static void handler(int signal_number) { handled = signal_number; }
GASNETT_END_EXTERNC

static void test_machine(void) {
    const char *name = gasnett_gethostname();
    CHECK(strlen(name) > 0);
    for (; *name; ++name) CHECK(*name < 'A' || *name > 'Z');
    CHECK(gasnett_exe_name()[0] == '/' && access(gasnett_exe_name(), X_OK) == 0);
    CHECK(gasnett_cpu_count() >= 1);
    CHECK(gasnett_getPhysMemSz(1) > 1 << 20);
    CHECK(gasnett_isLittleEndian() == 1 || gasnett_isLittleEndian() == 0);
#if PLATFORM_ARCH_LITTLE_ENDIAN
    CHECK(gasnett_isLittleEndian());
#endif
    CHECK(strlen(GASNETT_SYSTEM_TUPLE "") > 0);
    CHECK(GASNETT_PAGESIZE == 1 << GASNETT_PAGESHIFT && GASNETT_PAGESIZE % sysconf(_SC_PAGESIZE) == 0);
    CHECK((GASNETT_CACHE_LINE_BYTES & (GASNETT_CACHE_LINE_BYTES - 1)) == 0);
#if defined(GASNET_DEBUG)
    CHECK(strstr(gasnett_performance_warning_str(), "\n") != NULL);
#else
    CHECK(gasnett_performance_warning_str()[0] == 0);
#endif
}

static void test_affinity(void) {
#if GASNETT_SET_AFFINITY_SUPPORT
    /* This process may be forbidden to use some processors, but not all of them. */
    const int count = (int)sysconf(_SC_NPROCESSORS_CONF);
    int i, allowed = 0;
    for (i = 0; i < count; ++i) {
        const int result = gasnett_set_affinity(i);
        if (result == 0) ++allowed;
        /* The number must wrap around. */
        CHECK((gasnett_set_affinity(i + count) == 0) == (result == 0));
    }
    CHECK(allowed >= 1);
#endif
    gasnett_sched_yield();
}

static void test_signals(void) {
    gasnett_sighandlerfn_t before = gasnett_reghandler(SIGUSR1, &handler);
    CHECK(before == SIG_DFL);
    raise(SIGUSR1);
    CHECK(handled == SIGUSR1);
    CHECK(gasnett_reghandler(SIGUSR1, SIG_IGN) == &handler);
    handled = 0;
    raise(SIGUSR1);
    CHECK(handled == 0);

    CHECK(strcmp(gasnett_signame_fromval(SIGUSR1), "SIGUSR1") == 0);
    CHECK(strcmp(gasnett_signame_fromval(SIGKILL), "SIGKILL") == 0);
    CHECK(strcmp(gasnett_signame_fromval(SIGSTOP), "SIGSTOP") == 0);
    CHECK(strcmp(gasnett_signame_fromval(SIGIO), "SIGPOLL") == 0);
    CHECK(gasnett_signame_fromval(0) == NULL && gasnett_signame_fromval(-1) == NULL && gasnett_signame_fromval(1000) == NULL);
}

static void test_limits(void) {
    struct rlimit limit;
    CHECK(gasnett_maximize_rlimits() != 0);
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == limit.rlim_max);

    CHECK(getrlimit(RLIMIT_CORE, &limit) == 0);
    limit.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_CORE, &limit) == 0);
    gasnett_setenv("GASNET_MAXIMIZE_RLIMIT_CORE", "0");
    CHECK(gasnett_maximize_rlimit(RLIMIT_CORE, "RLIMIT_CORE") != 0);
    CHECK(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0);
    gasnett_unsetenv("GASNET_MAXIMIZE_RLIMIT_CORE");
    CHECK(gasnett_maximize_rlimit(RLIMIT_CORE, "RLIMIT_CORE") != 0);
    CHECK(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == limit.rlim_max);
    CHECK(gasnett_maximize_rlimit(-1, "NOTHING") == 0);
}

/* Makes the calls of GASNet's testinternal, without a team. */
static void test_diagnostics(void) {
    const char *table = "not set";
    int count = 1, evaluated = 0;
    gasnett_diagnostic_gethandlers(&table, &count);
    CHECK(table == NULL && count == 0);
    CHECK(gasnett_run_diagnostics(20, 3, NULL, ++evaluated, ++evaluated, ++evaluated, ++evaluated, 7) == 0);
    CHECK(gasnett_run_diagnostics(20, 0, "ab", NULL, NULL, 0, NULL, 7u) == 0);
    CHECK(evaluated == 4);
}

int test_system(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "streams") == 0) {
        printf("flushed without an end of line");
        gasnett_flush_streams();
        gasnett_close_streams();
        /* This text must be lost without an error. */
        printf("too late\n");
        fprintf(stderr, "too late\n");
        return 0;
    }
    if (argc > 1) (void)gasnett_reghandler(SIGKILL, &handler);
    test_machine();
    test_affinity();
    test_signals();
    test_limits();
    test_diagnostics();
    return 0;
}
