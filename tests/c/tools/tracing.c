/* Tracing. Nothing is recorded, and arguments that are only printed must not be evaluated. */
#include <gasnet_tools.h>

#include "programs.h"

static void callback(void) {}

int test_tracing(int argc, char **argv) {
    const char *file = "not set";
    unsigned int line = 1;
    int evaluated = 0;
    /* Realm takes the address of this function. */
    void (*volatile noop)(const char *, ...) = &_gasnett_trace_printf_noop;
    (void)argc, (void)argv;
    CHECK(noop != NULL);
    (*noop)("%d", 1);

    if (GASNETT_TRACE_ENABLED) CHECK(0);
    GASNETT_TRACE_PRINTF("%d", ++evaluated);
    GASNETT_TRACE_PRINTF_FORCE("%d %s", ++evaluated, "text");
    GASNETT_STATS_PRINTF("no arguments");
    GASNETT_STATS_PRINTF_FORCE("%d", ++evaluated);
    CHECK(evaluated == 0);

    GASNETT_STATS_INIT(&callback);
    GASNETT_STATS_DUMP(1);
    GASNETT_TRACE_SETMASK(GASNETT_TRACE_GETMASK());
    GASNETT_STATS_SETMASK(GASNETT_STATS_GETMASK());
    CHECK(GASNETT_TRACE_GETMASK()[0] == 0 && GASNETT_STATS_GETMASK()[0] == 0);
    GASNETT_TRACE_SET_TRACELOCAL(GASNETT_TRACE_GET_TRACELOCAL());

    GASNETT_TRACE_SETSOURCELINE(__FILE__, __LINE__);
    GASNETT_TRACE_FREEZESOURCELINE();
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    CHECK(file == NULL && line == 0);
    GASNETT_TRACE_UNFREEZESOURCELINE();
    callback();
    return 0;
}
