/* Settings in the environment, and numbers in human-readable form. */
#ifndef CONDUIT_TOOLS_ENVIRONMENT_H
#define CONDUIT_TOOLS_ENVIRONMENT_H

#include "annotations.h"

GASNETT_BEGIN_EXTERNC

/* Formats a number and returns buf. A size of memory is written in the largest unit (B, KB, MB,
 * GB, TB, PB or EB) that divides it. */
extern char *gasnett_format_number(int64_t val, char *buf, size_t bufsz, int is_mem_size);
/* Parses a number. If the multiplier is 0, the text must be an integer without a unit. Otherwise
 * the text must be a size of memory, which may be fractional. A size without a unit is
 * multiplied by the multiplier. Invalid text ends the process. */
extern int64_t gasnett_parse_int(const char *str, uint64_t mem_size_multiplier);

/* These two functions affect this process only. */
extern void gasnett_setenv(const char *key, const char *value);
extern void gasnett_unsetenv(const char *key);

/* Returns a variable's value in the job's environment or, if it has none there, in this
 * process's. Returns null if the variable is not set in either. Does not report the variable. */
extern char *gasnett_getenv(const char *keyname);
/* Return the value, or the default. With GASNET_VERBOSEENV, each variable is reported once. An
 * invalid value ends the process with an error that names the variable. */
extern char *gasnett_getenv_withdefault(const char *keyname, const char *defaultval);
extern int gasnett_getenv_yesno_withdefault(const char *keyname, int defaultval);
extern int64_t gasnett_getenv_int_withdefault(const char *keyname, int64_t defaultval, uint64_t mem_size_multiplier);
extern double gasnett_getenv_dbl_withdefault(const char *keyname, double defaultval);

/* Whether this process reports its settings, and functions that report settings obtained by
 * other means. */
extern int gasnett_verboseenv(void);
extern void gasnett_envint_display(const char *key, int64_t val, int is_dflt, int is_mem_size);
extern void gasnett_envstr_display(const char *key, const char *val, int is_dflt);
extern void gasnett_envdbl_display(const char *key, double val, int is_dflt);

GASNETT_END_EXTERNC

#endif
