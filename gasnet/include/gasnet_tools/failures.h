/* Errors that end the process, backtraces, and waiting for a debugger. */
#ifndef CONDUIT_TOOLS_FAILURES_H
#define CONDUIT_TOOLS_FAILURES_H

#include "annotations.h"
#include <stdarg.h>

GASNETT_BEGIN_EXTERNC

/* Prints the message with the process's rank and the source location, which is omitted if the
 * function is null. Then freezes for a debugger and prints a backtrace if the environment
 * requests these steps, and aborts. */
extern void conduit_tools_fatal(const char *function, const char *file, int line, const char *message) GASNETT_NORETURN;

/* Ends the process at once with all its threads, without running atexit functions. */
extern void gasnett_killmyprocess(int exitcode) GASNETT_NORETURN;

/* Waits until a debugger sets *flag to 0, after printing a message that names `flagsymname`. */
extern void gasnett_freezeForDebuggerNow(volatile int *flag, const char *flagsymname);
/* The same after an error, if GASNET_FREEZE_ON_ERROR requests it. */
extern void gasnett_freezeForDebuggerErr(void);

/* Sets the program's path for backtraces, and reads their settings from the environment. */
extern void gasnett_backtrace_init(const char *exename);
/* Writes a backtrace of the calling thread to a file descriptor. Returns 0 on success. */
extern int gasnett_print_backtrace(int fd);
/* Calls gasnett_print_backtrace if GASNET_BACKTRACE requests backtraces, and otherwise returns
 * nonzero. All fatal errors call this function. Clients may replace it. */
extern int (*gasnett_print_backtrace_ifenabled)(int fd);

/* A client's own backtrace mechanism: its name, its function (0 on success), and whether it
 * covers other threads. The library finds it by the name of the variable, which only the client
 * defines. */
typedef struct {
    const char *name;
    int (*fnp)(int fd);
    int threadsupport;
} gasnett_backtrace_type_t;
extern gasnett_backtrace_type_t gasnett_backtrace_user;

/* Returns "function() at file:line" for messages. The text is allocated by malloc, and the
 * caller must free it. */
extern char *conduit_tools_location(const char *function, const char *file, int line) GASNETT_MALLOC;

GASNETT_END_EXTERNC

#define GASNETT_CURRENT_FUNCTION __func__
#define gasnett_current_loc conduit_tools_location(GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__)

/* Longer messages are truncated, because no memory is allocated while the process ends. */
#define CONDUIT_FATAL_MESSAGE_BYTES 4096

GASNETT_FORMAT_PRINTF(conduit_fatalerror, 4, 5,
CONDUIT_LOCAL GASNETT_NORETURN void conduit_fatalerror(const char *function, const char *file, int line,
                                                       const char *format, ...)) {
    char message[CONDUIT_FATAL_MESSAGE_BYTES];
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof(message)) strcpy(message + sizeof(message) - 4, "...");
    conduit_tools_fatal(function, file, line, length < 0 ? format : message);
}

#define gasnett_fatalerror(...) conduit_fatalerror(GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__, __VA_ARGS__)
#define gasnett_fatalerror_nopos(...) conduit_fatalerror(NULL, NULL, 0, __VA_ARGS__)

#if CONDUIT_TOOLS_DEBUG
#define gasnett_unreachable() gasnett_fatalerror("reached code marked unreachable")
#define gasnett_assume(cond) ((cond) ? (void)0 : gasnett_fatalerror("assumption does not hold: %s", #cond))
#endif

#endif
