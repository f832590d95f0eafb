/* Settings in the environment, and numbers in human-readable form. */
#ifndef CONDUIT_TOOLS_ENVIRONMENT_H
#define CONDUIT_TOOLS_ENVIRONMENT_H

#include "annotations.h"

GASNETT_BEGIN_EXTERNC

/* Formats a number in the largest binary unit (K, M, G, T, P, E; with B for memory) that divides
 * it, and returns buf. */
extern char *gasnett_format_number(int64_t val, char *buf, size_t bufsz, int is_mem_size);
/* Parses such a number. With a multiplier, parses a size of memory, possibly fractional, to
 * which the multiplier applies if no unit is given; with 0, a number without unit. Invalid text
 * ends the process. */
extern int64_t gasnett_parse_int(const char *str, uint64_t mem_size_multiplier);

/* These affect this process only. */
extern void gasnett_setenv(const char *key, const char *value);
extern void gasnett_unsetenv(const char *key);

/* Returns the job's value of a variable, or else this process's; null if neither exists. Does
 * not report it. */
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
